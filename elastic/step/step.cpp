#include "elastic/step/step.h"

#include "tensor/digest_tree.h"

namespace elinvar {

TensorsDigest digest_in_order(std::span<const Tensor> tensors, std::span<const Tensor> then) {
  std::vector<Tensor> all(tensors.begin(), tensors.end());
  all.insert(all.end(), then.begin(), then.end());
  std::vector<Digest> digests;
  for (const TensorDigest& tensor : digest_tree(all)) digests.push_back(tensor.digest);
  return digest_in_order(digests);
}

TensorsDigest digest_in_order(std::span<const Digest> tensors) {
  TensorsDigest result;
  Hasher hasher;
  for (const Digest& tensor : tensors) {
    hasher.add(tensor);
    result.tensors += short_hex(tensor);
  }
  result.digest = hasher.digest();
  return result;
}

}  // namespace elinvar
