"""check_torch.py PROGRAM MODEL SIZE BATCH: compares a model with torchvision's in f64: outputs, gradients, running statistics, and
the weights that dptk saves. Exits with 77 if torch, torchvision or safetensors is not installed."""
import subprocess
import sys
import tempfile

try:
    import torch
    import torchvision
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"SKIPPED: {error}: PYTHON may name a Python with torch, torchvision and safetensors")
    sys.exit(77)

program, name, size, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(1)
torch.set_num_threads(1)
model = getattr(torchvision.models, name)(weights=None).double()
for module in model.modules():  # statistics and norms that are not those of a new model
    if isinstance(module, torch.nn.BatchNorm2d):
        module.running_mean.uniform_(-0.1, 0.1)
        module.running_var.uniform_(0.8, 1.2)
        torch.nn.init.uniform_(module.weight, 0.8, 1.2)
        torch.nn.init.uniform_(module.bias, -0.1, 0.1)
    if isinstance(module, torch.nn.Dropout):
        module.p = 0
inputs = torch.rand(batch, 3, size, size, dtype=torch.float64)
gradient = torch.rand(batch, 1000, dtype=torch.float64) / batch / 1000


def largest(found, expected):
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))


with tempfile.TemporaryDirectory() as folder:
    save_file({**{key: value.clone() for key, value in model.state_dict().items()},
               "case.input": inputs, "case.gradient": gradient}, f"{folder}/case.safetensors")
    subprocess.run([program, name, f"{folder}/case.safetensors", f"{folder}/result.safetensors"], check=True)
    result = load_file(f"{folder}/result.safetensors")
    saved = load_file(f"{folder}/result.safetensors.weights")

model.eval()
evaluated = model(inputs).detach()
model.train()
trained = model(inputs)
trained.backward(gradient)
errors = {
    "output in evaluation": largest(result["evaluated"], evaluated),
    "output in training": largest(result["trained"], trained.detach()),
    "gradients": max(float((result[f"gradient.{key}"] - value.grad).norm() / value.grad.norm().clamp(min=1e-12))
                     for key, value in model.named_parameters()),
    "running statistics": max(float((saved[key] - value).abs().max()) for key, value in model.state_dict().items() if "running" in key),
}
copy = getattr(torchvision.models, name)(weights=None).double()
copy.load_state_dict(saved, strict=True)
copy.eval()
model.eval()
errors["output of the saved weights"] = largest(copy(inputs).detach(), model(inputs).detach())
limits = {"gradients": 1e-3, "running statistics": 1e-5}
print(f"{name}, {batch} x 3 x {size} x {size}: " + ", ".join(f"{key} {value:.1e}" for key, value in errors.items()))
sys.exit(any(not value <= limits.get(key, 1e-4) for key, value in errors.items()))
