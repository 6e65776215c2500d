"""Special functions: error functions and normal quantiles, gamma and zeta functions, Bessel functions, polynomials."""
