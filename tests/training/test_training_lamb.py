"""LAMB against its formula, number by number, and in the stage."""

import math

import pytest
import torch
from safetensors import safe_open
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from teleport.running.files import sha256_file
from teleport.training import resume
from teleport.training.optimizers import Lamb, make_optimizer
from training_world import World, die_at, facts_of

RATE, DECAY = 0.1, 0.01


class PlainLamb:
    """The released rule on lists of floats."""

    def __init__(self, weights, decay):
        self.weights, self.decay = list(weights), decay
        self.mean, self.square = [0.0] * len(weights), [0.0] * len(weights)

    def step(self, gradient):
        self.mean = [0.9 * m + 0.1 * g for m, g in zip(self.mean, gradient, strict=True)]
        self.square = [0.999 * v + 0.001 * g * g for v, g in zip(self.square, gradient, strict=True)]
        update = [m / (math.sqrt(v) + 1e-8) for m, v in zip(self.mean, self.square, strict=True)]
        update = [u + self.decay * w for u, w in zip(update, self.weights, strict=True)]
        weight_norm = min(math.sqrt(sum(w * w for w in self.weights)), 10.0)
        update_norm = math.sqrt(sum(u * u for u in update))
        trust = weight_norm / update_norm if weight_norm > 0 and update_norm > 0 else 1.0
        self.weights = [w - RATE * trust * u for w, u in zip(self.weights, update, strict=True)]


@pytest.mark.parametrize("decay", [0.0, DECAY])
@pytest.mark.parametrize(
    "weights",
    [
        pytest.param([0.3, -0.4, 1.2], id="norm 1.3"),
        pytest.param([30.0, -40.0, 5.0], id="norm above 10"),
        pytest.param([0.0, 0.0, 0.0], id="zero"),
    ],
)
def test_steps_follow_the_formula(weights, decay):
    plain = PlainLamb(weights, decay)
    parameter = torch.nn.Parameter(torch.tensor(weights, dtype=torch.float64))
    optimizer = Lamb([parameter], lr=RATE, weight_decay=decay)
    for gradient in ([0.5, -2.0, 0.01], [-1.0, 0.0, 3.0], [0.2, 0.1, 0.1], [0.0, 0.0, 0.0]):
        plain.step(gradient)
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        torch.testing.assert_close(parameter.detach(), torch.tensor(plain.weights, dtype=torch.float64))
    assert parameter.detach().tolist() != weights


def test_first_step_by_hand():
    """m = 0.1 g and v = 0.001 g², so u = 0.1 / sqrt(0.001) = sqrt(10) per entry; |w| = 5, |u| = sqrt(20)."""
    parameter = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    parameter.grad = torch.tensor([2.0, 0.5])
    Lamb([parameter], lr=1.0, eps=0.0).step()
    moved = 5 / math.sqrt(20) * math.sqrt(10)
    torch.testing.assert_close(parameter.detach(), torch.tensor([3 - moved, 4 - moved]))


class Calls(TorchDispatchMode):
    """Counts the calls of torch's operators."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.count += operator.namespace == "aten"
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize(("device", "per_tensor"), [("cpu", 26), ("cuda", 0)])
def test_on_cuda_the_number_of_calls_does_not_grow_with_the_tensors(device, per_tensor):
    """FakeTensorMode needs no device: it works out shapes alone."""
    counts = []
    for number in (10, 20):
        with FakeTensorMode():
            weights = [torch.nn.Parameter(torch.empty(4, 4, device=device)) for _ in range(number)]
            for weight in weights:
                weight.grad = torch.empty_like(weight)
            optimizer = Lamb(weights, lr=RATE)
            optimizer.step()
            with Calls() as calls:
                optimizer.step()
        counts.append(calls.count)
    assert counts[1] - counts[0] <= 10 * per_tensor and 0 < counts[0] <= 10 * per_tensor + 30


def test_tensors_together_and_one_by_one_give_equal_bits():
    generator, made = torch.Generator().manual_seed(1), []
    start, gradients = (
        [torch.randn(*shape, generator=generator) for shape in ((3, 5), (7,), (2, 2))] for _ in range(2)
    )
    for _ in range(2):
        made.append([torch.nn.Parameter(tensor.clone()) for tensor in start])
    together, single = (Lamb(weights, lr=RATE, weight_decay=DECAY) for weights in made)
    for weights in made:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
    for _ in range(3):
        together.step()
        with torch.no_grad():
            for weight in made[1]:
                single.update([weight], single.param_groups[0])
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in zip(*made, start, strict=True))


def test_without_any_gradient_nothing_moves():
    """Both norms can be zero, and a tensor without a gradient is left alone."""
    zero, idle = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.ones(3))
    zero.grad = torch.zeros(3)
    Lamb([zero, idle], lr=RATE).step()
    assert torch.equal(zero, torch.zeros(3)) and torch.equal(idle, torch.ones(3))


def test_each_tensor_has_its_own_trust_ratio_and_only_matrices_decay():
    module = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(module.weight, 2.0)
    torch.nn.init.constant_(module.bias, 0.5)
    optimizer = make_optimizer("lamb", module, weight_decay=DECAY)
    expected = {"weight": PlainLamb([2.0] * 4, DECAY), "bias": PlainLamb([0.5] * 2, 0.0)}
    for group in optimizer.param_groups:
        group["lr"] = RATE
    for name, parameter in module.named_parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
        expected[name].step([0.25] * parameter.numel())
    optimizer.step()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.detach().flatten(), torch.tensor(expected[name].weights))


def test_the_stage_trains_with_lamb(stages):
    world = World(stages)
    made = world.finished(world.job({"steps": 30, "optimizer": "lamb", "learning_rate": 0.01}))
    assert facts_of(made)["last_loss"] < 0.7 * facts_of(made)["first_loss"]


def test_resumed_equals_uninterrupted(stages, monkeypatch):
    world = World(stages)
    whole = world.finished(world.job({"optimizer": "lamb"}))
    job = world.job({"optimizer": "lamb"}, save_every=0)
    die_at(job, 6, monkeypatch)
    with safe_open(job.resume / resume.FILE, framework="pt") as file:
        names = list(file.keys())
    assert {name.split("/")[0] for name in names} == {"weights", "exp_avg", "exp_avg_sq", "curves"}
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == 6
    digests = [sha256_file(made.folder / "checkpoint/model.safetensors") for made in (resumed, whole)]
    assert digests[0] == digests[1]
