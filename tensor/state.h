#pragma once
// A state dictionary: tensors by name, in name order. Runs save, send, digest and compare it.
#include <map>
#include <string>

#include "tensor/digest.h"
#include "tensor/tensor.h"

namespace elinvar {

using StateDict = std::map<std::string, Tensor>;

// The digest of a tensor is that of tensor/digest_tree.h. The digest of a dictionary covers names and tensor digests in
// name order; insertion order plays no part.
Digest digest(const Tensor& tensor);
Digest digest(const StateDict& state);

}  // namespace elinvar
