#include "elastic/step/step.h"

#include "tensor/digest_tree.h"

namespace elinvar {

TensorsDigest digest_in_order(std::span<const Tensor> tensors, std::span<const Tensor> then) {
  std::vector<Tensor> all(tensors.begin(), tensors.end());
  all.insert(all.end(), then.begin(), then.end());
  TensorsDigest result;
  Hasher hasher;
  for (const TensorDigest& tensor : digest_tree(all)) {
    hasher.add(tensor.digest);
    result.tensors += short_hex(tensor.digest);
  }
  result.digest = hasher.digest();
  return result;
}

}  // namespace elinvar
