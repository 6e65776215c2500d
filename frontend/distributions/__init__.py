"""Probability distributions under the names of torch.distributions."""

from polyhal.distributions import constraints, transforms
from polyhal.distributions.bernoulli import Bernoulli
from polyhal.distributions.binomial import Binomial
from polyhal.distributions.categorical import Categorical
from polyhal.distributions.cauchy import Cauchy, HalfCauchy
from polyhal.distributions.constraint_registry import ConstraintRegistry, biject_to, transform_to
from polyhal.distributions.continuous_bernoulli import ContinuousBernoulli
from polyhal.distributions.dirichlet import Beta, Dirichlet
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.exp_family import ExponentialFamily
from polyhal.distributions.exponential import Exponential
from polyhal.distributions.gamma import Chi2, FisherSnedecor, Gamma, InverseGamma
from polyhal.distributions.generalized_pareto import GeneralizedPareto
from polyhal.distributions.geometric import Geometric
from polyhal.distributions.gumbel import Gumbel
from polyhal.distributions.half_normal import HalfNormal
from polyhal.distributions.independent import Independent
from polyhal.distributions.joined_transforms import (
    CatTransform,
    CumulativeDistributionTransform,
    ReshapeTransform,
    StackTransform,
)
from polyhal.distributions.kl import kl_divergence, register_kl
from polyhal.distributions.kumaraswamy import Kumaraswamy
from polyhal.distributions.laplace import Laplace
from polyhal.distributions.lkj_cholesky import LKJCholesky
from polyhal.distributions.logistic_normal import LogisticNormal
from polyhal.distributions.low_rank_multivariate_normal import LowRankMultivariateNormal
from polyhal.distributions.matrix_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
)
from polyhal.distributions.mixture import MixtureSameFamily
from polyhal.distributions.multinomial import Multinomial
from polyhal.distributions.multivariate_normal import MultivariateNormal
from polyhal.distributions.negative_binomial import NegativeBinomial
from polyhal.distributions.normal import Normal
from polyhal.distributions.one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
from polyhal.distributions.pareto import Pareto
from polyhal.distributions.poisson import Poisson
from polyhal.distributions.relaxed_bernoulli import RelaxedBernoulli
from polyhal.distributions.relaxed_categorical import ExpRelaxedCategorical, RelaxedOneHotCategorical
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
from polyhal.distributions.von_mises import VonMises
from polyhal.distributions.weibull import Weibull
from polyhal.distributions.wishart import Wishart

from polyhal.distributions import kl_pairs as _kl_pairs  # isort: skip  # noqa: F401  # registers the pairs

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ConstraintRegistry",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpRelaxedCategorical",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "InverseTransform",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]
