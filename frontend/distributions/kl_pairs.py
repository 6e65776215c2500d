"""Formulas of the Kullback-Leibler divergence for pairs of distributions."""

from __future__ import annotations

import math
from typing import Any

from polyhal import functions as ops
from polyhal.distributions.bernoulli import Bernoulli
from polyhal.distributions.binomial import Binomial
from polyhal.distributions.categorical import Categorical
from polyhal.distributions.cauchy import Cauchy, HalfCauchy
from polyhal.distributions.continuous_bernoulli import ContinuousBernoulli
from polyhal.distributions.covariance import half_log_det
from polyhal.distributions.dirichlet import Beta, Dirichlet
from polyhal.distributions.exponential import Exponential
from polyhal.distributions.gamma import Gamma, InverseGamma
from polyhal.distributions.geometric import Geometric
from polyhal.distributions.gumbel import EULER, Gumbel
from polyhal.distributions.half_normal import HalfNormal
from polyhal.distributions.independent import Independent
from polyhal.distributions.kl import kl_divergence, register_kl
from polyhal.distributions.laplace import Laplace
from polyhal.distributions.low_rank_multivariate_normal import LowRankMultivariateNormal
from polyhal.distributions.multivariate_normal import MultivariateNormal, mahalanobis
from polyhal.distributions.normal import Normal
from polyhal.distributions.one_hot_categorical import OneHotCategorical
from polyhal.distributions.parameters import sum_rightmost
from polyhal.distributions.pareto import Pareto
from polyhal.distributions.poisson import Poisson
from polyhal.distributions.transformed import LogNormal, TransformedDistribution
from polyhal.distributions.trials import TrialDistribution
from polyhal.distributions.uniform import Uniform
from polyhal.distributions.wishart import Wishart, mvdigamma
from polyhal.functions import digamma, lgamma, softplus, xlogy
from polyhal.linalg import solve_triangular
from polyhal.tensor import Tensor


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: TrialDistribution, q: TrialDistribution) -> Tensor:
    success = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    return success + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    divergence = p.total_count * _bernoulli(p, q)
    return ops.where(p.total_count > q.total_count, math.inf, divergence)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = ops.where(p.probs == 0, 0.0, p.probs * (p.logits - q.logits))
    return ops.sum(ops.where(ops.logical_and(q.probs == 0, p.probs > 0), math.inf, terms), axis=-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = ops.square(p.scale / q.scale)
    return 0.5 * (ratio + ops.square((p.loc - q.loc) / q.scale) - 1 - ops.log(ratio))


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = ops.square(p.scale / q.scale)
    return 0.5 * (ratio - 1 - ops.log(ratio))


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    n = p.event_shape[0]
    ratio = solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    trace = ops.sum(ops.square(ratio), axis=(-2, -1))
    distance = mahalanobis(q.scale_tril, q.loc - p.loc)
    return half_log_det(q.scale_tril) - half_log_det(p.scale_tril) + 0.5 * (trace + distance - n)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    distance, ratio = ops.abs(p.loc - q.loc), p.scale / q.scale
    return -ops.log(ratio) + distance / q.scale + ratio * ops.exp(-distance / p.scale) - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    squared = ops.square(p.scale + q.scale) + ops.square(p.loc - q.loc)
    return ops.log(squared) - ops.log(4 * p.scale * q.scale)


@register_kl(HalfCauchy, HalfCauchy)
def _half_cauchy(p: HalfCauchy, q: HalfCauchy) -> Tensor:
    return 2 * ops.log(p.scale + q.scale) - ops.log(4 * p.scale * q.scale)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    growth = ops.exp(-shift + lgamma(1 + ratio))
    return -ops.log(ratio) + shift + ratio * EULER - 1 - EULER + growth


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ops.log(ratio)


@register_kl(Gamma, Gamma)
@register_kl(InverseGamma, InverseGamma)
def _gamma(p: Gamma | InverseGamma, q: Gamma | InverseGamma) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * ops.log(p.rate / q.rate) + a * (q.rate / p.rate - 1)
    return rates + lgamma(b) - lgamma(a) + (a - b) * digamma(a)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a1, a0, b1, b0 = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    log_p = lgamma(a1 + a0) - lgamma(a1) - lgamma(a0)
    log_q = lgamma(b1 + b0) - lgamma(b1) - lgamma(b0)
    total = a1 + a0
    means = (a1 - b1) * (digamma(a1) - digamma(total)) + (a0 - b0) * (digamma(a0) - digamma(total))
    return log_p - log_q + means


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = ops.sum(a, axis=-1, keepdims=True)
    sums = lgamma(ops.sum(a, axis=-1)) - lgamma(ops.sum(b, axis=-1))
    means = (a - b) * (digamma(a) - digamma(total))
    return sums + ops.sum(lgamma(b) - lgamma(a) + means, axis=-1)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return xlogy(p.rate, p.rate / q.rate) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - ops.log1p(-q.probs) / p.probs - q.logits


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    divergence = q.alpha * ops.log(p.scale / q.scale) - ops.log(ratio) + ratio - 1
    return ops.where(p.scale < q.scale, math.inf, divergence)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    divergence = ops.log((q.high - q.low) / (p.high - p.low))
    return ops.where(ops.logical_or(q.low > p.low, q.high < p.high), math.inf, divergence)


@register_kl(Uniform, Normal)
def _uniform_normal(p: Uniform, q: Normal) -> Tensor:
    width = p.high - p.low
    spread = ops.square(width) / 12 + ops.square((p.high + p.low) / 2 - q.loc)
    return ops.log(math.sqrt(2 * math.pi) * q.scale / width) + spread / (2 * ops.square(q.scale))


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    shift = (p.loc - q.loc) / p.scale
    mean = math.sqrt(2 / math.pi) * ops.exp(-0.5 * ops.square(shift)) + shift * ops.erf(math.sqrt(0.5) * shift)
    return ops.log(2 * q.scale / p.scale) + p.scale / q.scale * mean - 0.5 * math.log(2 * math.pi) - 0.5


@register_kl(Laplace, Normal)
def _laplace_normal(p: Laplace, q: Normal) -> Tensor:
    spread = ops.square(p.scale) + 0.5 * ops.square(p.loc - q.loc)
    return spread / ops.square(q.scale) + ops.log(q.scale / p.scale) + 0.5 * math.log(math.pi / 2) - 1


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    ratio, b = q.rate / p.rate, q.concentration
    return ratio - b * ops.log(ratio) + lgamma(b) + b * EULER - (1 + EULER)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Gamma, q: Exponential) -> Tensor:
    return -p.entropy() - ops.log(q.rate) + q.rate * p.mean


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("[kl_divergence] event axes differ; expected as many reinterpreted axes of both")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    """Return the divergence of the bases, if both have the same transforms."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("[kl_divergence] transforms differ; expected the same transforms of both")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _of_low_rank(p: Any, q: Any) -> Tensor:
    return _multivariate_normal(p, q)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    constants = p.log_normalizer() + ops.log1p(-p.probs) - q.log_normalizer() - ops.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + constants


@register_kl(Wishart, Wishart)
def _wishart(p: Wishart, q: Wishart) -> Tensor:
    n = p.event_shape[0]
    determinants = q.df * (half_log_det(q.scale_tril) - half_log_det(p.scale_tril))
    trace = ops.sum(q.precision_matrix * p.covariance_matrix, axis=(-2, -1))
    gammas = ops.mvlgamma(0.5 * q.df, n) - ops.mvlgamma(0.5 * p.df, n)
    return determinants + 0.5 * p.df * (trace - n) + gammas + 0.5 * (p.df - q.df) * mvdigamma(0.5 * p.df, n)
