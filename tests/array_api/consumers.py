"""Functions of scikit-learn and SciPy that run on arrays of any namespace, on tensors, compared with NumPy.

Run with SCIPY_ARRAY_API=1: `python -m tests.array_api.consumers numpy`. With `--timed` it also times them, with tensors and
with arrays of NumPy; `--output FILE` writes the outcome as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import polyhal

Convert = Callable[[np.ndarray], Any]
Case = tuple[str, Callable[[Convert], Any]]

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(60, 5)).astype(np.float32)
POSITIVE = _RNG.uniform(0.1, 1.0, (4, 16)).astype(np.float32)
CLASSES = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(np.int64)
GUESSES = np.roll(CLASSES, 3)
TARGETS = (X @ np.arange(1, 6)).astype(np.float32)
SCORES = (1 / (1 + np.exp(-X[:, 0]))).astype(np.float32)
_A, _B = POSITIVE[0], POSITIVE[1]


def _estimators() -> Iterator[Case]:
    from sklearn import (
        calibration,
        decomposition,
        discriminant_analysis,
        kernel_approximation,
        linear_model,
        mixture,
        model_selection,
        naive_bayes,
        pipeline,
        preprocessing,
    )

    def transformed(make: Callable[[], Any], x: np.ndarray = X) -> Callable[[Convert], Any]:
        return lambda c: make().fit_transform(c(x))

    def predicted(
        make: Callable[[], Any], y: np.ndarray = TARGETS, method: str = "predict"
    ) -> Callable[[Convert], Any]:
        return lambda c: getattr(make().fit(c(X), c(y)), method)(c(X))

    for name in ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "Normalizer", "Binarizer", "PolynomialFeatures"):
        yield f"preprocessing.{name}", transformed(getattr(preprocessing, name))
    yield "preprocessing.KernelCenterer", transformed(preprocessing.KernelCenterer, X @ X.T)
    yield "preprocessing.LabelEncoder", transformed(preprocessing.LabelEncoder, CLASSES)
    yield "preprocessing.LabelBinarizer", transformed(preprocessing.LabelBinarizer, CLASSES)
    yield "linear_model.Ridge", predicted(lambda: linear_model.Ridge(solver="svd"))
    yield "linear_model.RidgeCV", predicted(lambda: linear_model.RidgeCV(alphas=(0.1, 1.0)))
    yield "linear_model.RidgeClassifier", predicted(lambda: linear_model.RidgeClassifier(solver="svd"), CLASSES)
    yield "linear_model.RidgeClassifierCV", predicted(linear_model.RidgeClassifierCV, CLASSES)
    yield "linear_model.LogisticRegression", predicted(linear_model.LogisticRegression, CLASSES)
    yield "linear_model.PoissonRegressor", predicted(lambda: linear_model.PoissonRegressor(solver="lbfgs"), SCORES)
    for solver in ("full", "covariance_eigh", "randomized"):
        yield (
            f"decomposition.PCA {solver}",
            lambda c, s=solver: decomposition.PCA(3, svd_solver=s, random_state=0).fit(c(X)).explained_variance_,
        )
    analysis = discriminant_analysis.LinearDiscriminantAnalysis
    yield "discriminant_analysis", predicted(analysis, CLASSES, "predict_proba")
    yield "naive_bayes.GaussianNB", predicted(naive_bayes.GaussianNB, CLASSES, "predict_proba")
    yield (
        "mixture.GaussianMixture",
        lambda c: mixture.GaussianMixture(2, init_params="random_from_data", random_state=0).fit(c(X)).means_,
    )
    yield (
        "kernel_approximation.Nystroem",
        transformed(lambda: kernel_approximation.Nystroem(n_components=5, random_state=0)),
    )
    yield (
        "calibration.CalibratedClassifierCV",
        predicted(
            lambda: calibration.CalibratedClassifierCV(
                linear_model.RidgeClassifier(solver="svd"), method="temperature", cv=3
            ),
            CLASSES,
        ),
    )
    yield (
        "model_selection.train_test_split",
        lambda c: model_selection.train_test_split(c(X), c(CLASSES), random_state=0),
    )
    yield (
        "model_selection.cross_val_predict",
        lambda c: model_selection.cross_val_predict(analysis(), c(X), c(CLASSES), cv=3),
    )
    yield (
        "model_selection.GridSearchCV",
        lambda c: (
            model_selection.GridSearchCV(linear_model.Ridge(solver="svd"), {"alpha": [0.1, 1.0]}, cv=3)
            .fit(c(X), c(TARGETS))
            .best_score_
        ),
    )
    yield (
        "pipeline",
        predicted(lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge(solver="svd"))),
    )


_CLASS_METRICS = """accuracy_score balanced_accuracy_score cohen_kappa_score confusion_matrix f1_score hamming_loss
    jaccard_score precision_score recall_score zero_one_loss multilabel_confusion_matrix"""
_SCORE_METRICS = (
    "roc_auc_score average_precision_score brier_score_loss log_loss roc_curve precision_recall_curve det_curve"
)
_VALUE_METRICS = """d2_absolute_error_score d2_pinball_score d2_tweedie_score explained_variance_score max_error
    mean_absolute_error mean_absolute_percentage_error mean_gamma_deviance mean_pinball_loss mean_poisson_deviance
    mean_squared_error mean_squared_log_error mean_tweedie_deviance median_absolute_error r2_score root_mean_squared_error
    root_mean_squared_log_error"""
_PAIRWISE = """cosine_similarity cosine_distances euclidean_distances linear_kernel polynomial_kernel rbf_kernel
    laplacian_kernel sigmoid_kernel manhattan_distances"""


def _applied(function: Callable[..., Any], *arrays: np.ndarray) -> Callable[[Convert], Any]:
    return lambda c: function(*map(c, arrays))


def _statistic(test: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *samples: test(*samples).statistic


def _metrics() -> Iterator[Case]:
    from sklearn import metrics

    for names, truth, guess in (
        (_CLASS_METRICS, CLASSES, GUESSES),
        (_SCORE_METRICS, CLASSES, SCORES),
        (_VALUE_METRICS, SCORES + 1, np.roll(SCORES, 1) + 1),
    ):
        for name in names.split():
            if (metric := getattr(metrics, name, None)) is not None:
                yield f"metrics.{name}", _applied(metric, truth, guess)
    for name in _PAIRWISE.split():
        yield f"metrics.pairwise.{name}", _applied(getattr(metrics.pairwise, name), X)
    for name in ("paired_cosine_distances", "paired_euclidean_distances"):
        yield f"metrics.pairwise.{name}", _applied(getattr(metrics.pairwise, name), X, X[::-1].copy())


_FFT = "fft ifft rfft fft2 fftn ifftn rfftn hfft dct idct dst idst"
_SPECIAL = """log_ndtr ndtr ndtri erf erfc i0 i0e i1 i1e gammaln gamma expit logit digamma entr exp1 log_softmax logsumexp
    softmax"""
_SPECIAL_PAIRS = "gammainc gammaincc rel_entr xlogy chdtr chdtrc betaln stdtr"
_STATS = """skew kurtosis moment sem zscore gzscore variation gmean hmean iqr tmean tvar tmin tmax tstd tsem circmean circvar
    circstd kstat entropy mode lmoment gstd rankdata"""
_TESTS = """ttest_ind ttest_rel pearsonr f_oneway bartlett levene fligner kruskal mannwhitneyu alexandergovern wilcoxon
    cramervonmises_2samp"""
_SIGNAL = "convolve correlate fftconvolve oaconvolve"
_NDIMAGE = "sobel"


def _scipy() -> Iterator[Case]:
    from scipy import differentiate, fft, integrate, ndimage, optimize, signal, special, stats
    from scipy.cluster import hierarchy, vq
    from scipy.optimize import elementwise

    for package, names in (("fft", _FFT), ("special", _SPECIAL), ("stats", _STATS), ("ndimage", _NDIMAGE)):
        functions = {"fft": fft, "special": special, "stats": stats, "ndimage": ndimage}[package]
        for name in names.split():
            yield f"{package}.{name}", _applied(getattr(functions, name), POSITIVE * 0.9)
    for name in _SPECIAL_PAIRS.split():
        yield f"special.{name}", _applied(getattr(special, name), POSITIVE, POSITIVE * 0.5)
    for name in _TESTS.split():
        yield f"stats.{name}", _applied(_statistic(getattr(stats, name)), _A, _B)
    for name in ("chisquare", "power_divergence"):
        yield f"stats.{name}", _applied(_statistic(getattr(stats, name)), POSITIVE)
    yield "stats.ttest_1samp", lambda c: stats.ttest_1samp(c(POSITIVE), 0.5, axis=1).pvalue
    yield "stats.directional_stats", lambda c: stats.directional_stats(c(POSITIVE)).mean_direction
    yield "cluster.vq.whiten", lambda c: vq.whiten(c(POSITIVE))
    yield "cluster.vq.vq", lambda c: vq.vq(c(POSITIVE), c(POSITIVE[:2]))
    yield "cluster.hierarchy.linkage", lambda c: hierarchy.linkage(c(POSITIVE), "average")
    for name in _SIGNAL.split():
        yield f"signal.{name}", _applied(getattr(signal, name), _A, _B)
    for name in ("detrend", "hilbert"):
        yield f"signal.{name}", _applied(getattr(signal, name), POSITIVE)
    yield "signal.savgol_filter", lambda c: signal.savgol_filter(c(POSITIVE), 5, 2)
    for name in ("trapezoid", "simpson", "cumulative_trapezoid", "cumulative_simpson"):
        yield f"integrate.{name}", _applied(getattr(integrate, name), POSITIVE)
    zero, one, two = (np.array([v], np.float32) for v in (0.0, 1.0, 2.0))
    # The default tolerance, 1e-8, is below float32's rounding: without luck, 10,000 subdivisions follow.
    yield (
        "integrate.cubature",
        lambda c: integrate.cubature(lambda x: x[..., 0] ** 2, c(zero), c(one), rtol=1e-5).estimate,
    )
    yield "integrate.tanhsinh", lambda c: integrate.tanhsinh(lambda x: x * x, c(zero), c(one)).integral
    yield "optimize.elementwise.find_root", lambda c: elementwise.find_root(lambda x: x * x - 2, (c(zero), c(two))).x
    yield "optimize.rosen", lambda c: optimize.rosen(c(_A))
    yield "differentiate.derivative", lambda c: differentiate.derivative(lambda x: x * x * x, c(one)).df


def _on_host(value: Any) -> list[np.ndarray]:
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in _on_host(part)]
    found = value.numpy() if isinstance(value, polyhal.Tensor) else np.asarray(value)
    return [] if found.dtype == object else [found]


def _seconds(run: Callable[[], object]) -> float:
    """Return the least time of the processor for a call, of five."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


@dataclass
class Comparison:
    """Functions that ran on a device, compared with NumPy."""

    failed: dict[str, str] = field(default_factory=dict)
    """Errors by function."""
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Milliseconds of the processor with arrays of NumPy and with tensors, for functions that agree."""
    count: int = 0


def compare(device: str, is_timed: bool = False) -> Comparison:
    """Run all functions on a device and with NumPy.

    Iterations stop at tolerances of float32, hence the bound of 1 %.
    """
    import sklearn

    result = Comparison()
    with polyhal.Device(device) as opened, sklearn.config_context(array_api_dispatch=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, run in (*_estimators(), *_metrics(), *_scipy()):
            result.count += 1
            expected = _on_host(run(lambda a: a))
            try:
                found = _on_host(run(polyhal.tensor))
                assert len(found) == len(expected)
                for one, other in zip(found, expected, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)
                if is_timed:
                    arrays = _seconds(partial(run, lambda a: a))
                    tensors = _seconds(lambda run=run: (run(polyhal.tensor), opened.synchronize()))  # type: ignore[misc]
                    result.times[name] = (round(1e3 * arrays, 4), round(1e3 * tensors, 4))
            except Exception as error:  # every kind of failure is reported
                result.failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.array_api.consumers", description=__doc__)
    parser.add_argument("device")
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result = compare(options.device, options.timed)
    for name, problem in result.failed.items():
        print(f"  {name}: {problem}")
    agree = result.count - len(result.failed)
    print(f"{options.device}: {agree} of {result.count} functions of scikit-learn and SciPy agree with NumPy")
    if options.output is not None:
        options.output.write_text(json.dumps(asdict(result)), encoding="utf-8")
    sys.exit(bool(result.failed))


if __name__ == "__main__":
    main()
