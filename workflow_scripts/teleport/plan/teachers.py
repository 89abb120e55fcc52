"""The stages of a teacher: the vectors of a dual encoder, or the scores of a file or of a cross-encoder."""

from teleport.encoder.completed import completed
from teleport.plan.encodings import encode_stage, tokens_stage
from teleport.plan.identity import identify_checkpoint, identify_file, pretrained_settings
from teleport.plan.stage import Stage
from teleport.refusal import Refusal
from teleport.settings.registry import score_loads
from teleport.settings.teachers import CrossScoreSettings, RankerSettings, Reads, ScoresFileSettings


def vectors_of_teacher(mining, name):
    """(encode stage of the queries, of the passages) of a teacher with vectors. mining: of the episode that it teaches.
    Raises Refusal for a file, for an episode that is not there yet, and for several vectors a passage where `mining`
    says so."""
    trajectory, teacher = mining.trajectory, mining.experiment.teachers[name]
    if teacher.experiment:
        vectors = episode_of(mining, name, teacher).vectors
        return vectors.queries("train"), vectors.passages
    if not teacher.encoder:
        raise Refusal(
            f"{mining.place}: the teacher {name} has no vectors, only scores of pairs of a query and a passage, but "
            "vectors are compared here. Name a teacher with an encoder."
        )
    encoder = completed(teacher.encoder)
    source = Stage("pretrained", pretrained_settings(encoder, 0, f"teachers.{name}.encoder"), {})
    trajectory.link(source, mining.number, f"pretrained-{name}")
    encoded = []
    for texts in ("queries.train", "passages"):
        tokens = tokens_stage(trajectory.plan, encoder, texts, source)
        encode = encode_stage(encoder, texts, encoder.precision or "auto", tokens, source)
        trajectory.link(tokens, mining.number, f"tokens-{texts}-{name}")
        encoded.append(trajectory.link(encode, mining.number, f"encode-{texts}-{name}"))
    return tuple(encoded)


def episode_of(mining, name, teacher):
    """The `Episode` whose checkpoint teaches."""
    trajectory, place = mining.trajectory, f"{mining.place}: teachers.{name}"
    if teacher.experiment == trajectory.name:
        episodes = trajectory.episodes
    elif teacher.experiment not in trajectory.plan.experiments:
        raise Refusal(f"{place}: no experiment is called {teacher.experiment!r}. Add it, or name another one.")
    else:
        episodes = trajectory.plan.trajectory(teacher.experiment, trajectory.seed).episodes
    number = episodes[-1].number if teacher.episode == "last" else teacher.episode
    if not 0 <= number < len(episodes):
        raise Refusal(
            f"{place}: {teacher.experiment} has no checkpoint of episode {number} yet, only up to "
            f"{len(episodes) - 1}. Name one of those."
        )
    return episodes[number]


def scores_of_file(mining, name):
    """The scores_file stage of a teacher that is a file."""
    path = mining.experiment.teachers[name].file
    settings = ScoresFileSettings(path=path, sha256=identify_file(path, f"teachers.{name}.file"))
    stage = Stage("scores_file", settings, mining.trajectory.plan.parts("train"))
    return mining.trajectory.link(stage, mining.number, f"scores-{name}")


def scores_of_cross_encoder(mining, name, pairs, inputs, link):
    """The cross_score stage of a teacher that is a cross-encoder. pairs: the settings.ScoreSettings of what is scored;
    inputs: where that is read"""
    trajectory, given = mining.trajectory, mining.experiment.teachers[name].cross_encoder
    checkpoint = identify_checkpoint(given.checkpoint, f"teachers.{name}.cross_encoder.checkpoint")
    ranker = Stage("ranker", RankerSettings(checkpoint=checkpoint), {})
    trajectory.link(ranker, mining.number, f"ranker-{name}")
    settings = CrossScoreSettings.taken_from(pairs, **{key: getattr(given, key) for key in Reads.model_fields})
    stage = Stage("cross_score", settings, inputs | {"ranker": ranker}, score_loads(settings))
    return trajectory.link(stage, mining.number, link)
