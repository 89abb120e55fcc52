"""The stages of a teacher: the vectors of a dual encoder, or the scores of a file or a cross-encoder, which may first
be trained on a pool; and whether a loss can compare the model's vectors with a teacher's."""

from teleport.encoder.own_settings import dense_width, read_form, read_sizes
from teleport.encoder.source import OWN_FILES, locate, require_ranker
from teleport.plan.dev_split import require_dev
from teleport.plan.encodings import tokens_stage, vectors_of_encoder
from teleport.plan.identity import identify_checkpoint, identify_file
from teleport.plan.stage import Stage
from teleport.refusal import Refusal
from teleport.settings.encoder import TextSettings
from teleport.settings.registry import score_loads
from teleport.settings.search import RetrieveSettings
from teleport.settings.teachers import (
    CrossScoreSettings,
    CrossTrainSettings,
    RankerSchedule,
    RankerSettings,
    Reads,
    ScoresFileSettings,
)


def unused_warnings(trajectories):
    """Warnings about teachers of experiments (their `Trajectory` list) that no episode names."""
    given = {name for trajectory in trajectories for name in trajectory.experiment.teachers}
    used = {whose for trajectory in trajectories for episode in trajectory.method for _, whose in episode.judges}
    why = "no effect, because no episode names it in a draw, filter, relabelling, source, loss, mask or clusters"
    return [f"teachers.{name}: {why}." for name in sorted(given - used)]


def vectors_of_teacher(mining, name):
    """The `Vectors` of a teacher. mining: of the episode that it teaches. Raises Refusal for a teacher without vectors,
    and for an episode that is not planned yet."""
    teacher, key = mining.experiment.teachers.get(name), f"teachers.{name}"  # none is called FILE
    if teacher and teacher.experiment:
        return episode_of(mining, key, teacher)[1].vectors
    if not (teacher and teacher.encoder):
        raise Refusal(
            f"{mining.place}: the teacher {name} has no vectors, only scores of pairs of a query and a passage, but "
            "vectors are compared here. Name a teacher with an encoder."
        )
    return vectors_of_encoder(mining.trajectory, teacher.encoder, mining.number, name, f"{key}.encoder")


def episode_of(mining, key, named):
    """The (`Trajectory`, `Episode`) that `named`, the settings under `key`, refers to by experiment and episode. Raises
    Refusal if it is not planned yet: its result would depend on itself."""
    return mining.trajectory.plan.episode_of(mining.trajectory, named, f"{mining.place}: {key}", key)


def require_comparable(place, whose, model, other):
    """Raise Refusal if the vectors of two settings.Encoder, `model` (trained) and `other` (of the teacher `whose`),
    differ in chunks, or in widths that the files of both checkpoints tell. place: the episode, for the message"""
    lengths = [(encoder.chunks, encoder.max_passage_tokens) for encoder in (model, other)]
    if lengths[0] != lengths[1] and max(chunks for chunks, _ in lengths) > 1:
        of_model, of_other = (f"{chunks} x {tokens}" for chunks, tokens in lengths)
        raise Refusal(
            f"{place}: training.loss compares the vectors of chunks, and chunks x max_passage_tokens is {of_model} for "
            f"the model and {of_other} for {whose}. Set the same values in both encoders, or take another loss."
        )
    widths = [width_of(encoder) for encoder in (model, other)]
    if None not in widths and widths[0] != widths[1]:
        raise Refusal(
            f"{place}: training.loss compares the vectors of {whose}, which are {widths[1]} wide, with those of the "
            f"model, {widths[0]} wide. Set encoder.projection to {widths[1]}, or take another teacher."
        )


def width_of(encoder):
    """The width of a settings.Encoder's vectors; None if its files do not say it, or are on the hub."""
    if encoder.truncate_dim or encoder.projection or encoder.checkpoint.hub:
        return encoder.truncate_dim or encoder.projection
    folder = locate(encoder.checkpoint, OWN_FILES)
    if encoder.layers is None and (width := dense_width(folder)):
        return width
    config = folder / "config.json"
    return read_sizes(read_form(dict, config), config).hidden_size


def scores_of_file(mining, name):
    """The scores_file stage of a teacher that is a file."""
    path = mining.experiment.teachers[name].file
    settings = ScoresFileSettings(path=path, sha256=identify_file(path, f"teachers.{name}.file"))
    stage = Stage("scores_file", settings, mining.trajectory.plan.parts("train"))
    return mining.trajectory.link(stage, mining.number, f"scores-{name}")


def scores_of_cross_encoder(mining, name, pairs, inputs, link):
    """The cross_score stage of a teacher that is a cross-encoder. pairs: the settings.ScoreSettings of the pairs to
    score; inputs: where these are read"""
    trajectory, given = mining.trajectory, mining.experiment.teachers[name].cross_encoder
    key = f"teachers.{name}.cross_encoder.checkpoint"
    source = given.checkpoint or mining.experiment.encoder.checkpoint
    checkpoint = identify_checkpoint(source, key)
    if not source.hub:  # hub files are not here yet
        require_ranker(locate(source, OWN_FILES), key, starts=bool(given.training))
    ranker = Stage(
        "ranker", RankerSettings(checkpoint=checkpoint, seed=trajectory.seed if given.training else None), {}
    )
    trajectory.link(ranker, mining.number, f"ranker-{name}")
    if given.training:
        ranker = trained(mining, name, ranker)
    settings = CrossScoreSettings.taken_from(pairs, **{key: getattr(given, key) for key in Reads.model_fields})
    stage = Stage("cross_score", settings, inputs | {"ranker": ranker}, score_loads(settings))
    return trajectory.link(stage, mining.number, link)


def trained(mining, name, start):
    """The cross_train stage of a teacher that is trained here. start: the ranker stage it starts from"""
    trajectory, plan = mining.trajectory, mining.trajectory.plan
    given = mining.experiment.teachers[name].cross_encoder
    training, key = given.training, f"teachers.{name}.cross_encoder.training"
    pool, vectors = pool_of(mining, f"{key}.pool", training.pool)
    dev = training.dev if training.evaluate_every else None
    # Tokens do not depend on the seed: all seeds read those of the tokenizer of seed 0.
    tokenizer = Stage("ranker", RankerSettings(checkpoint=start.settings.checkpoint, seed=0), {})
    trajectory.link(tokenizer, mining.number, f"ranker-tokenizer-{name}")
    inputs = plan.parts("train") | {"checkpoint": start, "negatives": pool}
    inputs |= {role: stage for role, stage in pool.inputs.items() if role == "positives"}  # positives by answers
    splits = ["queries.train", "passages"]
    if dev:
        require_dev(plan.config, dev, training, mining.place, f"{key}.dev")
        splits.append(f"queries.{dev.split}")
        inputs |= plan.parts(dev.split)
        search = RetrieveSettings(of="queries", split=dev.split, depth=dev.depth)
        inputs["dev"] = trajectory.retrieve(vectors, vectors.index, search, mining.number, f"retrieve-dev-{name}")
    texts = TextSettings(title=given.title, query_prefix="", passage_prefix="")
    for of in dict.fromkeys(splits):
        tokens = tokens_stage(plan, texts, of, tokenizer)
        inputs[f"tokens.{of}"] = trajectory.link(tokens, mining.number, f"tokens-{of}-{name}")
    schedule = RankerSchedule.taken_from(training)
    ignore = bool(dev and plan.config.evaluation.ignore_own_text)
    settings = CrossTrainSettings(
        training=schedule, max_tokens=given.max_tokens, seed=trajectory.seed, dev=dev, ignore_own_text=ignore
    )
    return trajectory.link(Stage("cross_train", settings, inputs), mining.number, f"cross-train-{name}")


def pool_of(mining, key, named):
    """(merge stage of the pool that `named` under a key names, `Vectors` of the checkpoint before its episode). It may
    be the pool of the episode being planned, once that is drawn: a loss may learn from a teacher trained on the same
    pool."""
    same_episode = named.experiment == mining.trajectory.name and named.episode == mining.number
    if same_episode and "pool" in vars(mining):
        return mining.pool, mining.trajectory.episodes[-1].vectors
    trajectory, episode = episode_of(mining, key, named)
    if not episode.pool:
        raise Refusal(
            f"{mining.place}: {key}: episode {episode.number} of {named.experiment} draws no negatives, and a "
            "cross-encoder learns from them. Name an episode with a pool."
        )
    return episode.pool, trajectory.episodes[episode.number - 1].vectors
