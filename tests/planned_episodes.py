"""The words for what a plan makes of a method: negatives, who mines, loss and start of each episode."""

from teleport.settings.experiment import Start


def planned_episodes(trajectory):
    """What the stages of a `Trajectory` do, a sentence for each episode; equal ones that follow each other are one."""
    sentences = []
    for episode in trajectory.episodes[1:]:
        words = [pool_text(episode, trajectory), training_text(episode), *teacher_texts(trajectory)]
        sentence = ", ".join(filter(None, words))
        number = sentences.pop()[0] if sentences and sentences[-1][1] == sentence else 0
        sentences.append((number + 1, sentence))
    return [f"{number} × {sentence}" if number > 1 else sentence for number, sentence in sentences]


def pool_text(episode, trajectory):
    """Counts, ranks, draws and filters of the pool of an `Episode`, and which checkpoint mines."""
    if not episode.pool:
        live = episode.train.settings.live
        return f"live {live.depth}{'' if live.index.kind == 'flat' else ' ' + live.index.factory}" if live else ""
    pool, sources = episode.pool.settings, []
    for name, draw in pool.sources.items():
        ranks = ", ".join(f"{first}-{last}" for first, last in draw.ranks or ())
        drawn = "" if draw.draw.kind == "uniform" else f" {chosen_text(draw.draw)}"
        sources.append(f"{name} {draw.count}{drawn}{f' of ranks {ranks}' if ranks else ''}")
    filters = [f"{name} {setting}" for name, setting in pool.filters.items()]
    counted = [f"ranks after {pool.ranks_after}"] if pool.ranks_after != "removals" else []
    counted += ["same text removed"] if pool.same_text else []
    compared = [f"s+ {pool.positive_score}"] if pool.positive_score else []
    rankers = [read.inputs.get("ranker") for read in episode.pool.inputs.values() if read.kind == "cross_score"]
    told = [ranker.settings.training for ranker in rankers if ranker.kind == "cross_train"]
    compared += [f"by a cross-encoder trained on {each.negatives_per_query} own, {each.loss}" for each in told]
    miners = {read.inputs["queries"].name for read in episode.pool.inputs.values() if read.kind == "retrieve"}
    own = {n.number: n.vectors.queries("train").name for n in trajectory.episodes}
    mined = [f"mined by checkpoint {number}" for number, name in own.items() if name in miners]
    relabelled = [f"relabelled by {chosen_text(relabel)}"] if (relabel := episode.settings.negatives.relabel) else []
    return ", ".join([" + ".join(sources), *filters, *compared, *relabelled, *counted, *mined[:1]])


def training_text(episode):
    """Loss, own negatives, masks and start of the training of an `Episode`."""
    training, start = episode.train.settings.training, episode.settings.training.start_from
    weights = [f"{loss.weight:g} " if loss.weight != 1 else "" for loss in training.losses]
    words = [" + ".join(weight + chosen_text(loss) for weight, loss in zip(weights, training.losses, strict=True))]
    words += [f"{training.negatives_per_query} own"] if training.negatives_per_query else []
    words += [f"up to {training.max_positives} positives"] if training.positive == "all" else []
    words += ["the first positive"] if training.positive == "first" else []
    words += [f"{training.stop_after_steps} steps"] if training.stop_after_steps else []
    with_queries = " with queries" * training.memory_queries
    words += [f"memory of {training.memory}{with_queries}"] if training.memory else []
    words += [f"{training.mixed_negatives} mixed"] if training.mixed_negatives else []
    words += [f"widths {', '.join(map(str, training.widths))}"] if training.widths else []
    words += map(chosen_text, training.masks)
    words += [name for name in ("triples", "distinct_positives") if getattr(training, name)]
    words += (
        [f"batches of {training.clusters.number} clusters by {training.clusters.vectors}"] if training.clusters else []
    )
    words += [f"{' and '.join(training.trains)} alone"] if len(training.trains) == 1 else []
    words += [f"averaged {training.average_with_start}"] if training.average_with_start else []
    words += [f"continues {training.continues}".lower()] if training.continues else []
    words += [f"from {start.experiment if isinstance(start, Start) else start}"] if start != "pretrained" else []
    return ", ".join(words)


def teacher_texts(trajectory):
    """Yield which checkpoint each teacher of a `Trajectory` is that is an experiment's."""
    for name, teacher in trajectory.experiment.teachers.items():
        if teacher.experiment:
            yield f"{name} is {teacher.experiment}{'' if teacher.episode == 'last' else f' {teacher.episode}'}"


def chosen_text(chosen):
    """A `Chosen` by its name and its own settings that are not off, but the miner as whose scores it compares."""
    own = {name: value for name, value in chosen.own.items() if value and value != "miner"}
    return chosen.kind + (f" ({', '.join(f'{name} {value}' for name, value in own.items())})" if own else "")
