#pragma once
// A state dictionary: tensors by name, in name order. What is saved, sent, digested and compared.
#include <map>
#include <string>

#include "tensor/digest.h"
#include "tensor/tensor.h"

namespace elinvar {

using StateDict = std::map<std::string, Tensor>;

// The digest of a tensor is the XXH3-128 over the name of its dtype (length first), its number of dimensions, each
// extent, and the XXH3-128 of each chunk of 1 MiB of its elements: little-endian, in logical (row-major) order,
// every NaN as the positive quiet one without payload (0x7fc00000 and its like). So it does not depend on strides,
// nor on how many threads hash chunks. That of a dictionary covers names and tensor digests in name order; the
// order in which it was filled plays no part.
Digest digest(const Tensor& tensor);
Digest digest(const StateDict& state);

}  // namespace elinvar
