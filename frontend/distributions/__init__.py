"""Probability distributions under the names of torch.distributions."""

from polyhal.distributions import constraints, transforms
from polyhal.distributions.bernoulli import Bernoulli
from polyhal.distributions.binomial import Binomial
from polyhal.distributions.categorical import Categorical
from polyhal.distributions.cauchy import Cauchy, HalfCauchy
from polyhal.distributions.dirichlet import Beta, Dirichlet
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.exponential import Exponential
from polyhal.distributions.gamma import Chi2, FisherSnedecor, Gamma, InverseGamma
from polyhal.distributions.geometric import Geometric
from polyhal.distributions.gumbel import Gumbel
from polyhal.distributions.half_normal import HalfNormal
from polyhal.distributions.independent import Independent
from polyhal.distributions.kl import kl_divergence, register_kl
from polyhal.distributions.kumaraswamy import Kumaraswamy
from polyhal.distributions.laplace import Laplace
from polyhal.distributions.mixture import MixtureSameFamily
from polyhal.distributions.multinomial import Multinomial
from polyhal.distributions.multivariate_normal import MultivariateNormal
from polyhal.distributions.negative_binomial import NegativeBinomial
from polyhal.distributions.normal import Normal
from polyhal.distributions.one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
from polyhal.distributions.pareto import Pareto
from polyhal.distributions.poisson import Poisson
from polyhal.distributions.relaxed_bernoulli import RelaxedBernoulli
from polyhal.distributions.student_t import StudentT
from polyhal.distributions.transformed import LogNormal, TransformedDistribution
from polyhal.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    InverseTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from polyhal.distributions.uniform import Uniform
from polyhal.distributions.weibull import Weibull

from polyhal.distributions import kl_pairs as _kl_pairs  # isort: skip  # noqa: F401  # registers the pairs

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi",
    "Chi2",
    "ComposeTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "FisherSnedecor",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "InverseTransform",
    "Kumaraswamy",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PowerTransform",
    "RelaxedBernoulli",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "Weibull",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transforms",
]
