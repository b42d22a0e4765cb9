"""check_torch.py PROGRAM BACKEND MODEL SIZE BATCH: compares a model with torchvision's, or timm's, in f64: outputs, gradients,
running statistics, and the weights that dptk saves. BACKEND is reference, in f64, or onednn, in f32. Exits with 77 if torch,
torchvision, timm or safetensors is not installed."""
import subprocess
import sys
import tempfile

try:
    import timm
    import torch
    import torchvision
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"SKIPPED: {error}: PYTHON may name a Python with torch, torchvision, timm and safetensors")
    sys.exit(77)

program, backend, name, size, batch = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])


def new_model():
    model = timm.create_model("resnest50d") if name == "resnest50" else getattr(torchvision.models, name)(weights=None)
    return model.double()


torch.manual_seed(1)
torch.set_num_threads(1)
model = new_model()
for module in model.modules():  # statistics and norms that are not those of a new model
    if isinstance(module, torch.nn.BatchNorm2d):
        module.running_mean.uniform_(-0.1, 0.1)
        module.running_var.uniform_(0.8, 1.2)
        # Small factors and positive offsets keep most ReLUs open. Otherwise rounding errors of float grow from layer to
        # layer, in PyTorch's own results as well.
        torch.nn.init.uniform_(module.weight, 0.2, 0.4)
        torch.nn.init.uniform_(module.bias, 0.4, 0.6)
    if isinstance(module, torch.nn.Dropout):
        module.p = 0
for parameter in model.parameters():
    parameter.data = parameter.data.float().double()
inputs = torch.rand(batch, 3, size, size).double()
gradient = (torch.rand(batch, 1000) / batch / 1000).double()


def largest(found, expected):
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))


def norm_of(tensors):
    return sum(float(tensor.norm())**2 for tensor in tensors)**0.5


with tempfile.TemporaryDirectory() as folder:
    save_file({**{key: value.clone() for key, value in model.state_dict().items()},
               "case.input": inputs, "case.gradient": gradient}, f"{folder}/case.safetensors")
    subprocess.run([program, backend, name, f"{folder}/case.safetensors", f"{folder}/result.safetensors"], check=True)
    result = {key: value.double() for key, value in load_file(f"{folder}/result.safetensors").items()}
    saved = load_file(f"{folder}/result.safetensors.weights")

model.eval()
evaluated = model(inputs).detach()
model.train()
trained = model(inputs)
trained.backward(gradient)
errors = {
    "output in evaluation": largest(result["evaluated"], evaluated),
    "output in training": largest(result["trained"], trained.detach()),
    "gradients": norm_of(result[f"gradient.{key}"] - value.grad for key, value in model.named_parameters()) /
                 norm_of(value.grad for value in model.parameters()),
    "running statistics": max(float((saved[key] - value).abs().max()) for key, value in model.state_dict().items() if "running" in key),
}
copy = new_model()
copy.load_state_dict({key: value if value.dtype == torch.int64 else value.double() for key, value in saved.items()}, strict=True)
copy.eval()
model.eval()
errors["output of the saved weights"] = largest(copy(inputs).detach(), model(inputs).detach())
limits = {"gradients": 1e-3, "running statistics": 1e-5}
print(f"{name} on {backend}, {batch} x 3 x {size} x {size}: " + ", ".join(f"{key} {value:.1e}" for key, value in errors.items()))
sys.exit(any(not value <= limits.get(key, 1e-4) for key, value in errors.items()))
