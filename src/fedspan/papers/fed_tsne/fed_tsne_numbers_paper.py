"""The paper's numbers: Qiao, Ding and Fan, "Federated t-SNE and UMAP for distributed data visualization", AAAI 2025.

Means over its runs; each row has CA by 1, 10 and 50 neighbours, NPA by as many, NMI and SC.
"""

from __future__ import annotations

#: Tables 1 and 2, by data set, face, and (split, noise); centralised: (None, False).
MAPS: dict[tuple[str, str], dict[tuple[str | None, bool], tuple[float, ...]]] = {
    ("MNIST", "t-SNE"): {
        (None, False): (0.9618, 0.9656, 0.9609, 0.4176, 0.3905, 0.3441, 0.7747, 0.4226),
        ("IID", False): (0.9400, 0.9477, 0.9401, 0.2728, 0.3373, 0.3301, 0.7534, 0.4407),
        ("IID", True): (0.9364, 0.9443, 0.9354, 0.2543, 0.3263, 0.3258, 0.7471, 0.4478),
        ("one class", False): (0.9412, 0.9483, 0.9406, 0.2729, 0.3375, 0.3305, 0.7399, 0.4321),
        ("one class", True): (0.9189, 0.9307, 0.9209, 0.1928, 0.2827, 0.3030, 0.7025, 0.4441),
    },
    ("MNIST", "UMAP"): {
        (None, False): (0.9322, 0.9613, 0.9602, 0.0308, 0.1227, 0.2226, 0.8285, 0.6118),
        ("IID", False): (0.9066, 0.9445, 0.9432, 0.0293, 0.1133, 0.2099, 0.7844, 0.5812),
        ("IID", True): (0.9007, 0.9416, 0.9400, 0.0277, 0.1088, 0.2053, 0.7812, 0.5746),
        ("one class", False): (0.9064, 0.9449, 0.9441, 0.0298, 0.1131, 0.2095, 0.7919, 0.5889),
        ("one class", True): (0.8730, 0.9224, 0.9219, 0.0218, 0.0914, 0.1860, 0.7368, 0.5422),
    },
    ("Fashion-MNIST", "t-SNE"): {
        (None, False): (0.8112, 0.8260, 0.8064, 0.3518, 0.3635, 0.3710, 0.5787, 0.4049),
        ("IID", False): (0.7473, 0.7892, 0.7754, 0.1251, 0.2551, 0.3363, 0.5780, 0.4382),
        ("IID", True): (0.7198, 0.7706, 0.7631, 0.0718, 0.1954, 0.3004, 0.5733, 0.4638),
        ("one class", False): (0.7453, 0.7898, 0.7760, 0.1275, 0.2571, 0.3369, 0.5778, 0.4389),
        ("one class", True): (0.6669, 0.7280, 0.7280, 0.0274, 0.1090, 0.2204, 0.5162, 0.4564),
    },
    ("Fashion-MNIST", "UMAP"): {
        (None, False): (0.7146, 0.7734, 0.7781, 0.0356, 0.1401, 0.2518, 0.6187, 0.5304),
        ("IID", False): (0.6756, 0.7413, 0.7491, 0.0218, 0.1002, 0.2152, 0.5915, 0.5448),
        ("IID", True): (0.6587, 0.7287, 0.7383, 0.0156, 0.0799, 0.1907, 0.5755, 0.5476),
        ("one class", False): (0.6766, 0.7437, 0.7501, 0.0223, 0.1020, 0.2167, 0.5877, 0.5338),
        ("one class", True): (0.6110, 0.6875, 0.7006, 0.0071, 0.0423, 0.1226, 0.5191, 0.5322),
    },
}

#: Tables 3 and 4, MNIST t-SNE: (NMI, NPA10) by (split, noise) and number of sites.
SITES: dict[tuple[str, bool], dict[int, tuple[float, float]]] = {
    ("by class", False): {5: (0.741, 0.336), 10: (0.740, 0.338)},
    ("by class", True): {5: (0.709, 0.286), 10: (0.702, 0.283)},
    ("IID", False): {
        5: (0.747, 0.337),
        10: (0.753, 0.337),
        20: (0.745, 0.337),
        50: (0.747, 0.338),
        100: (0.749, 0.338),
    },
    ("IID", True): {5: (0.740, 0.323), 10: (0.747, 0.326), 20: (0.742, 0.329), 50: (0.741, 0.332), 100: (0.741, 0.333)},
}

#: Table 5: (NMI, ARI or None) by data set and (split, noise).
CLUSTERS: dict[str, dict[tuple[str | None, bool], tuple[float, float | None]]] = {
    "MNIST": {
        (None, False): (0.5415, 0.3837),
        ("IID", False): (0.5240, 0.3815),
        ("IID", True): (0.5220, 0.3807),
        ("one class", False): (0.5235, 0.3806),
        ("one class", True): (0.5025, 0.3829),
    },
    "COIL-20": {
        (None, False): (0.6085, None),
        ("IID", False): (0.8425, None),
        ("IID", True): (0.4333, None),
        ("one class", False): (0.8339, None),
        ("one class", True): (0.4215, None),
    },
    "mice": {
        (None, False): (0.3241, 0.1837),
        ("IID", False): (0.3233, 0.1827),
        ("IID", True): (0.3220, 0.1802),
        ("one class", False): (0.3222, 0.1809),
        ("one class", True): (0.3198, 0.1783),
    },
}


def beside(value: float, theirs: float | None, digits: int = 3) -> str:
    """Return our number, with the paper's in brackets where it has one.

    Examples
    --------
    >>> beside(0.95378, 0.9477), beside(-0.25, None)
    ('.954 [.948]', '-.250')
    """

    def short(number: float) -> str:
        return f"{number:.{digits}f}".replace("0.", ".", 1) if abs(number) < 1 else f"{number:.{digits}f}"

    return short(value) + ("" if theirs is None else f" [{short(theirs)}]")
