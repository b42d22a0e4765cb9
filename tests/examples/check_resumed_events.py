"""check_resumed_events.py FOLDER RESUMED: compares TensorBoard's files of a run with those of a run that was interrupted."""
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"TensorBoard's files are not read: {error}")
    sys.exit(0)

TIMES = ["samples_per_second", "waiting_share"]
TAGS = sorted(["accuracy/test", "accuracy/train", "gradient_norm", "loss/test", "loss/train", "lr", *TIMES])


def read(folder):
    accumulator = EventAccumulator(folder, size_guidance={"scalars": 0, "images": 0})
    accumulator.Reload()
    images = {tag: [(event.step, event.encoded_image_string) for event in accumulator.Images(tag)]
              for tag in accumulator.Tags()["images"]}
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
            for tag in accumulator.Tags()["scalars"]}, images


(whole, images), (resumed, resumed_images) = read(sys.argv[1]), read(sys.argv[2])
assert "misclassified/01" in images and images == resumed_images, (sorted(images), sorted(resumed_images))
assert sorted(whole) == TAGS and sorted(resumed) == TAGS, (sorted(whole), sorted(resumed))
for tag in TAGS:
    steps = [step for step, _ in whole[tag]]
    assert steps == sorted(set(steps)), f"{tag}: {steps}"
    assert [step for step, _ in resumed[tag]] == steps, f"{tag}: {resumed[tag]}, expected the steps {steps}"
    for (step, expected), (_, found) in zip(whole[tag], resumed[tag]):
        same = tag in TIMES or abs(found - expected) <= 1e-6 * abs(expected)
        assert same, f"{tag} of step {step}: {found}, expected {expected}"
print(f"TensorBoard reads {len(TAGS)} tags and {len(images)} images, the same ones from both runs")
