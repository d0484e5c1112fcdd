#pragma once
// Initial values. Each fills a tensor from the Philox stream of its key: element i comes from word i % 4 of
// philox(key, i / 4, 0, 0, 0), with u = uniform01(word), so values depend neither on threads nor on other tensors. All
// arithmetic is float32 with one rounding per operation; bounds and deviations are computed in double (+ * / sqrt only)
// and rounded once.
//
//   uniform   (2 u - 1) * bound
//   normal    Box and Muller: for each pair of neighbouring elements, with u from the first and v from the second,
//             r = sqrt(-2 * log(1 - u)), first = mean + deviation * (r * cos(t)), second with sin, t = float(2 pi) * v
//
// The fan_in of a weight (out, in) or (O, KH, KW, C / groups) is the number of elements in a row of dimension 0;
// fan_out is the first extent times the extents of the window.
#include "nn/parameters.h"

namespace elinvar::init {

Initializer constant(double value);
Initializer uniform(double bound);
Initializer normal(double deviation, double mean = 0.0);

// Rows of the values that an initializer gives a matrix (rows, channels): fills `rows` (N, channels) with those at
// `index`, whatever the number of rows of the matrix.
using RowInitializer = std::function<void(std::span<const int64_t> index, Tensor& rows, uint64_t key)>;
RowInitializer uniform_rows(double bound);
RowInitializer normal_rows(double deviation);

// PyTorch's default for linear and convolutional weights: kaiming_uniform with a = sqrt(5), which is uniform with
// bound 1 / sqrt(fan_in). Their biases take the bound of the weight: uniform(1 / sqrt(fan_in)).
Initializer fan_in_uniform();

// He et al., "Delving deep into rectifiers": normal with deviation sqrt(2 / fan_out), for layers before a ReLU.
Initializer kaiming_normal();

// Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks": uniform with bound
// sqrt(6 / (fan_in + fan_out)).
Initializer xavier_uniform();

// Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks": a weight of
// shape (rows, ...) as a matrix (rows, columns) gets orthonormal rows or columns, whichever are fewer, times `gain`.
// It is the Q of the QR decomposition of a matrix of normal numbers (of its transpose if rows < columns), by
// Householder reflections, with the signs that make the diagonal of R positive, as in torch.nn.init.orthogonal_. It is
// computed in double and rounded once, by one thread of scalar code, so that its bits are the same on every machine; a
// large weight takes time.
Initializer orthogonal(double gain = 1.0);

}  // namespace elinvar::init
