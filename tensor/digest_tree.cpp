#include "tensor/digest_tree.h"

#include <algorithm>
#include <cstring>
#include <list>

#include "tensor/base/check.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"
#include "tensor/transfer.h"

namespace elinvar {
namespace {

// The tensors of one device.
class Digesting {
 public:
  explicit Digesting(Device device) : device_(device) {}

  Device device() const { return device_; }
  void add(const Tensor& x, TensorDigest& result) {
    tensors_.push_back(x.to_contiguous());
    results_.push_back(&result);
    result.chunks.resize(static_cast<size_t>(digest_chunks_of(x.bytes())));
    chunks_ += static_cast<int64_t>(result.chunks.size());
  }
  void begin() {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Digest));
    Tensor digests = Tensor::empty({chunks_, kBytes}, DType::u8, device_);
    std::vector<DigestArgs> all;
    auto* at = static_cast<char*>(digests.raw());
    for (const Tensor& x : tensors_) {
      all.push_back({in(x), {at, DType::u8}, x.bytes()});
      at += digest_chunks_of(x.bytes()) * kBytes;
    }
    on(device_, [&](auto& stream) { digest_chunks(stream, all); });
    sent_ = Download(std::move(digests));
  }
  void finish() {
    const Tensor digests = sent_.wait();
    const auto* at = static_cast<const char*>(digests.raw());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      std::vector<Digest>& chunks = results_[i]->chunks;
      const size_t bytes = chunks.size() * sizeof(Digest);
      if (bytes > 0) std::memcpy(chunks.data(), at, bytes);
      at += bytes;
      results_[i]->digest = digest_of_chunks(tensors_[i].dtype(), tensors_[i].shape(), chunks);
    }
  }

 private:
  Device device_;
  std::vector<Tensor> tensors_;
  std::vector<TensorDigest*> results_;
  int64_t chunks_ = 0;
  Download sent_;
};

}  // namespace

// GPUs digest their tensors while the CPU digests its own.
std::vector<TensorDigest> digest_tree(std::span<const Tensor> tensors) {
  const trace::Pause pause;
  std::vector<TensorDigest> results(tensors.size());
  std::list<Digesting> devices;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Device device = tensors[i].device();
    auto found = std::find_if(devices.begin(), devices.end(), [&](const Digesting& d) { return d.device() == device; });
    if (found == devices.end())
      found = device == Device{} ? devices.emplace(devices.end(), device) : devices.emplace(devices.begin(), device);
    found->add(tensors[i], results[i]);
  }
  for (Digesting& device : devices) device.begin();
  for (Digesting& device : devices) device.finish();
  return results;
}

Digest digest_of_chunks(DType dtype, const Shape& shape, std::span<const Digest> chunks) {
  const int64_t expected = digest_chunks_of(shape.numel() * size_of(dtype));
  check(std::ssize(chunks) == expected, "[digest] {} of shape {} has {} chunks, got {}", name_of(dtype),
        to_string(shape), expected, chunks.size());
  Hasher hasher;
  hasher.add(std::string_view(name_of(dtype)));
  hasher.add_integer(shape.ndim());
  for (int64_t extent : shape) hasher.add_integer(extent);
  for (const Digest& chunk : chunks) hasher.add(chunk);
  return hasher.digest();
}

std::string short_hex(const Digest& digest) { return digest.hex().substr(0, kShortDigest); }

}  // namespace elinvar
