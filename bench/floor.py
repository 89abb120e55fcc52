"""How long encoding and a training step would take if every operator ran alone, in the cache, at its best.

    taskset -c 0 python bench/floor.py --threads 1 [--queries 8] [--negatives 7] [--checkpoint FOLDER | --bert-base]

The work of a layer is taken apart: its matrix products, attention, GELU, and the sums with LayerNorm (and dropout).
Each part is timed by itself on texts of one length, with as many rows at once as are fastest, and of all ways that are
known the fastest counts. Their sum is what no order of these operators goes below; the share of the rate of bare
products that this leaves is the largest that can be reached without operators of one's own. Beside it stand the stages
themselves, on texts of MS MARCO's lengths. Only on a CPU, where nothing runs beside anything else.
"""

import time
from contextlib import nullcontext
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import torch
from teleport.cpu.kernels import CpuEncoder
from torch.nn import functional

import encode
import texts
import train
from commands.forecast.flops import forward_flop
from products import product, shape_of
from rounds import interleaved, report
from teleport.encoder.batches import Chunks
from teleport.encoder.model import Spans
from teleport.encoder.precision import resolve_precision

TEXTS = (3, 12, 48)  # of mean length at once, of which the fastest counts
SECONDS = 0.3  # for which a part is repeated; its fastest time counts
CPU = torch.device("cpu")
RATE = 0.1  # of dropout


def fastest(run):
    """The least seconds that a function without arguments takes."""
    run()
    found, until = [], time.perf_counter() + SECONDS
    while not found or time.perf_counter() < until:
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


def numbers(*sizes, dtype=torch.float32, trained=False):
    """Random numbers, which get gradients where they are `trained`."""
    return torch.randn(sizes).to(dtype).requires_grad_(trained)


def there_and_back(function, *inputs):
    """A function that computes the output and, but for inference, the gradients of those inputs that get some."""
    if torch.is_inference_mode_enabled():
        return lambda: function(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    by_output = torch.randn_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), wanted, by_output)


def sdpa(inputs, count, heads):
    """torch's own attention of texts of one length, [T, 3H] to [T, H]."""
    q, k, v = inputs.view(count, -1, 3, heads, inputs.shape[1] // 3 // heads).permute(2, 0, 3, 1, 4)
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(len(inputs), -1)


def parts_of_layer(encoder, dtype, count, length, trained):
    """{part: [(times in a layer, [ways to do it, functions without arguments])]} for `count` texts of one length."""
    layer, config = encoder.backbone.encoder.layer[0].train(trained), encoder.backbone.config
    rows, width, wide, heads = count * length, config.hidden_size, config.intermediate_size, config.num_attention_heads
    packed = CpuEncoder(encoder, dtype)
    made = packed.fuse(layer)
    gelu = layer.intermediate.intermediate_act_fn

    def multiplied(weight_and_bias, columns, activation=None):
        weight, bias = (w.detach().requires_grad_() if trained else w for w in weight_and_bias)
        x = numbers(rows, columns, dtype=dtype, trained=trained)
        return 1, [there_and_back(lambda x, w, b: packed.linear(x, w, b, activation), x, weight, bias)]

    inputs = numbers(rows, 3 * width, dtype=dtype, trained=trained)
    spans, rate = Spans(np.full(count, length), CPU, heads), RATE if trained else 0.0
    attentions = [there_and_back(lambda x: packed.attention(None, x, spans, rate), inputs)]
    if not trained:  # with dropout torch has no fused attention on a CPU
        attentions.append(there_and_back(lambda x: sdpa(x, count, heads), inputs))
    change, hidden = numbers(rows, width, dtype=dtype, trained=trained), numbers(rows, width, trained=trained)
    parts = {
        # Without a gradient oneDNN computes GELU within the product.
        "products": [
            multiplied(made.inputs, width), multiplied(made.attn_out, width), multiplied(made.ffn_out, wide),
            multiplied(made.ffn_in, width, None if trained else gelu),
        ],
        "attention": [(1, attentions)],
        "sums and LayerNorm": [(2, [there_and_back(partial(packed.add_and_norm, layer.output), change, hidden)])],
    }  # fmt: skip
    if trained:
        parts["GELU"] = [(1, [there_and_back(gelu, numbers(rows, wide, dtype=dtype, trained=True))])]
    if dtype != torch.float32:
        parts["casts"] = [(2, [there_and_back(lambda x: x.to(dtype), hidden)])]
    return parts


def seconds_per_token(encoder, dtype, length, trained):
    """{part: the least seconds that a token takes in all layers}."""
    found = {}
    with torch.inference_mode() if not trained else nullcontext():
        for count in TEXTS:
            for part, pieces in parts_of_layer(encoder, dtype, count, length, trained).items():
                taken = sum(times * min(fastest(way) for way in ways) for times, ways in pieces)
                found.setdefault(part, []).append(taken / (count * length))
    # With cls the last layer computes little more than the first tokens, which is left out of the floor.
    layers = len(encoder.backbone.encoder.layer) - (encoder.pooling == "cls")
    return {part: layers * min(each) for part, each in found.items()}


def seconds_per_step(trainer, dtype):
    """{part: seconds of a step whatever its tokens}: the optimiser, and weights and gradients in another format."""
    parameters = list(trainer.encoders.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    weights = [p for p in trainer.encoders[0].backbone.encoder.parameters() if p.ndim > 1]

    def update():
        norm, _ = trainer.gradient_norms()
        torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)
        trainer.optimizer.step()

    found = {"optimiser": fastest(update)}
    if dtype != torch.float32:
        found["weights cast"] = sum(fastest(there_and_back(lambda x: x.to(dtype), weight)) for weight in weights)
    return found


def figures_of(name, parts, tokens, fixed, taken, flop, rate):
    """What is printed of one stage: its parts, and their sum beside what the stage takes (seconds)."""
    floor = tokens * sum(parts.values()) + sum(fixed.values())
    found = {f"{name}: nanoseconds a token, {part}": round(1e9 * each) for part, each in parts.items()}
    found |= {f"{name}: milliseconds a step, {part}": round(1e3 * each, 1) for part, each in fixed.items()}
    found |= {f"{name}: seconds of the floor": float(f"{floor:.3g}")}
    found |= {f"{name}: floors that the stage takes": round(taken / floor, 2)}
    found |= {f"{name}: share of the products' rate at the floor": round(flop / floor / rate, 3)}
    return found | {f"{name}: share of the products' rate of the stage": round(flop / taken / rate, 3)}


def main(arguments=None):
    sizes = {"queries": 8, "negatives": 7, "passages": 256}
    arguments = texts.parser("The least that torch's operators take.", **sizes).parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    dtype = resolve_precision("auto", CPU) or torch.float32
    with TemporaryDirectory() as folder:
        passages = max(train.QUERIES, arguments.passages)
        world = texts.Texts(texts.checkpoint(arguments, folder), folder, passages, train.QUERIES)
        data = train.training_set(arguments)
        trainer, batch = train.make_trainer(world, data, CPU, "auto"), data.batch(0)
        encoded = Chunks(world.passage_map, texts.MAX_PASSAGE_TOKENS).lengths
        queries = Chunks(world.query_map, texts.MAX_QUERY_TOKENS).lengths
        of_step = np.concatenate([queries[batch.queries_Q], encoded[batch.passages_P]])
        stages = {
            "stage, encode": encode.stage_encode(world, CPU, "auto"),
            "stage, train": lambda: trainer.finish(trainer.step(0)),
        }
        seconds = interleaved(stages, arguments.rounds)
        multiply, product_flop = product(shape_of(world.encoder), CPU, dtype)
        figures, rate = {}, product_flop / fastest(multiply)
        for name, lengths, trained in (("encode", encoded, False), ("train", of_step, True)):
            parts = seconds_per_token(world.encoder, dtype, round(encoded.mean()), trained)
            fixed = seconds_per_step(trainer, dtype) if trained else {}
            flop = (3 if trained else 1) * float(forward_flop(shape_of(world.encoder), lengths).sum())
            taken = min(seconds[f"stage, {name}"])
            figures |= figures_of(name, parts, int(lengths.sum()), fixed, taken, flop, rate)
        report("floor", seconds, (), 1, "runs", arguments, **figures)


if __name__ == "__main__":
    main()
