#pragma once
// A state dictionary: tensors by name, in name order. What is saved, sent, digested and compared.
#include <map>
#include <string>

#include "tensor/digest.h"
#include "tensor/tensor.h"

namespace elinvar {

using StateDict = std::map<std::string, Tensor>;

// XXH3-128 over each tensor's dtype, shape and little-endian bytes in logical order (NaN made canonical), then over
// names and digests in name order: independent of layout, and of the order in which the dictionary was filled.
Digest digest(const Tensor& tensor);
Digest digest(const StateDict& state);

}  // namespace elinvar
