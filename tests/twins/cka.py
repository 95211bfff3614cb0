"""HSIC and CKA as they are defined, on lists of rows, with every kernel entry written out."""

from math import sqrt


def kernel(rows: list[list[float]]) -> list[list[float]]:
    return [[sum(a * b for a, b in zip(one, other, strict=True)) for other in rows] for one in rows]


def debiased_hsic(x: list[list[float]], y: list[list[float]]) -> float:
    n, k, l = len(x), kernel(x), kernel(y)  # noqa: E741
    for i in range(n):
        k[i][i] = l[i][i] = 0.0
    trace = sum(k[i][j] * l[j][i] for i in range(n) for j in range(n))
    sum_k, sum_l = (sum(map(sum, matrix)) for matrix in (k, l))
    rows_k, rows_l = ([sum(row) for row in matrix] for matrix in (k, l))
    sum_kl = sum(a * b for a, b in zip(rows_k, rows_l, strict=True))
    total = trace + sum_k * sum_l / ((n - 1) * (n - 2)) - 2 * sum_kl / (n - 2)
    return total / (n * (n - 3))


def biased_hsic(x: list[list[float]], y: list[list[float]]) -> float:
    n, k, l = len(x), _centred(kernel(x)), _centred(kernel(y))  # noqa: E741
    return sum(k[i][j] * l[j][i] for i in range(n) for j in range(n)) / (n - 1) ** 2


def cka(x: list[list[float]], y: list[list[float]], hsic=debiased_hsic) -> float:
    return hsic(x, y) / sqrt(hsic(x, x) * hsic(y, y))


def minibatch_cka(x: list[list[float]], y: list[list[float]], size: int) -> float:
    """Three means over batches, weighted by their sizes; fewer than 4 rows are no batch."""
    between = within_x = within_y = 0.0
    for start in range(0, len(x), size):
        a, b = x[start : start + size], y[start : start + size]
        if len(a) >= 4:
            between += len(a) * debiased_hsic(a, b)
            within_x += len(a) * debiased_hsic(a, a)
            within_y += len(a) * debiased_hsic(b, b)
    return between / sqrt(within_x * within_y)


def alignment(similarities: list[float], topk: int) -> float:
    best = sorted(range(len(similarities)), key=lambda i: -similarities[i])[:topk]
    return sum(similarities[i] * i for i in best) / sum(similarities[i] for i in best)


def _centred(matrix: list[list[float]]) -> list[list[float]]:
    n = len(matrix)
    rows = [sum(row) / n for row in matrix]
    columns = [sum(matrix[i][j] for i in range(n)) / n for j in range(n)]
    mean = sum(rows) / n
    return [[matrix[i][j] - rows[i] - columns[j] + mean for j in range(n)] for i in range(n)]
