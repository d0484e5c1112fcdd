#include "tensor/state.h"

#include <vector>

#include "tensor/digest_tree.h"

namespace elinvar {

Digest digest(const Tensor& tensor) { return digest_tree({&tensor, 1})[0].digest; }

Digest digest(const StateDict& state) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : state) tensors.push_back(tensor);
  const std::vector<TensorDigest> digests = digest_tree(tensors);
  Hasher hasher;
  size_t i = 0;
  for (const auto& [name, tensor] : state) {
    hasher.add(std::string_view(name));
    hasher.add(digests[i++].digest);
  }
  return hasher.digest();
}

}  // namespace elinvar
