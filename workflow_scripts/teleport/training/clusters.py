"""Batches whose queries are about one subject: k-means clusters the query vectors before training, and a batch takes
queries of one cluster (TAS-B, Hofstätter et al., SIGIR 2021, arXiv 2104.06967; CDE, arXiv 2410.02525)."""

import numpy as np

from teleport.refusal import Refusal
from teleport.seed import derive_seed
from teleport.training.budget import ITERATIONS
from teleport.training.vectors import require_vectors


def read_clusters(job, seed):
    """The cluster of each training query of a train job, int32 [queries], from the vectors of the role `clusters`. All
    attempts on machines of one kind get the same clusters, so that nothing need be saved."""
    path, number = job.input("clusters", "queries.train.npy"), job.settings.training.clusters.number
    vectors = np.load(path, mmap_mode="r")
    if number > len(vectors):
        raise Refusal(
            f"training.clusters.number is {number}, and there are {len(vectors)} training queries: a cluster needs at "
            "least one. Lower it; a cluster should have several batches of queries."
        )
    require_vectors(job, path, "query", vectors)
    return cluster(vectors, number, derive_seed(seed, "clusters"), job.threads)


def cluster(vectors, number, seed, threads=1):
    """The nearest of `number` centroids to each vector [n, dim]: int32 [n]. The centroids come from faiss's k-means,
    which starts with centroids far apart (k-means++) and uses up to 256 vectors per centroid."""
    import faiss

    faiss.omp_set_num_threads(threads)
    vectors = np.ascontiguousarray(vectors, np.float32)
    options = {"niter": ITERATIONS, "seed": seed % 2**31, "init_method": faiss.ClusteringInitMethod_KMEANS_PLUS_PLUS}
    options["min_points_per_centroid"] = 1  # small collections are intended: faiss would warn of fewer than 39
    means = faiss.Kmeans(vectors.shape[1], number, **options)
    means.train(vectors)
    return means.index.search(vectors, 1)[1].ravel().astype(np.int32)


def clustered_order(order, clusters, size, seed):
    """The queries of an epoch (int64) in batches of `size`. Each cluster fills as many batches as it can; the remaining
    queries of all clusters, in turn, fill the other batches. order, clusters: int [n], shuffled queries and their
    clusters. Every query occurs once; those after the last whole batch are dropped from the epoch, as always."""
    rng, places = np.random.default_rng(seed), np.argsort(clusters, kind="stable")
    groups = np.split(order[places], np.flatnonzero(np.diff(clusters[places])) + 1)
    rng.shuffle(groups)
    whole = [len(group) // size * size for group in groups]
    filled = [group[:end] for group, end in zip(groups, whole, strict=True)]
    left = [group[end:] for group, end in zip(groups, whole, strict=True)]
    queries, end = np.concatenate(filled + left), len(order) // size * size
    return np.concatenate([rng.permutation(queries[:end].reshape(-1, size)).ravel(), queries[end:]])


def cluster_facts(clusters, size):
    """Return the facts of the training queries' clusters for the manifest: how many there are, the sizes of the
    smallest and the largest, and the share of an epoch's batches that come from one cluster."""
    counts = np.bincount(clusters)
    counts = counts[counts > 0]
    share = int((counts // size).sum()) / max(1, len(clusters) // size)
    return {
        "clusters": len(counts),
        "smallest_cluster": int(counts.min()),
        "largest_cluster": int(counts.max()),
        "batches_of_one_cluster": share,
    }
