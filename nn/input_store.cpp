#include "nn/input_store.h"

#include <map>
#include <mutex>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/file_tensor.h"
#include "tensor/ops/copy.h"
#include "tensor/transfer.h"

namespace elinvar {

constexpr size_t kLeaving = 2;  // inputs on their way: the host waits rather than let a GPU hold more

// Tensors in files, which are used again: a file costs more to make than to fill.
struct InputStore::Files : std::enable_shared_from_this<Files> {
  // Its elements are unspecified.
  Tensor take(const Shape& shape, DType dtype, const std::filesystem::path& folder) {
    const int64_t bytes = shape.numel() * size_of(dtype);
    Tensor file;
    {
      const std::lock_guard lock(mutex);
      if (const auto found = free.find(bytes); found != free.end()) {
        file = std::move(found->second.back());
        found->second.pop_back();
        if (found->second.empty()) free.erase(found);
      }
    }
    if (!file.defined()) file = zeros_in_file({bytes}, DType::u8, folder);
    void* const elements = file.raw();
    const std::shared_ptr<const void> lent(elements, [files = weak_from_this(), file](const void*) {
      hand_back(file);
      if (const auto all = files.lock()) all->give_back(file);
    });
    return Tensor::over(lent, elements, shape, dtype);
  }
  void give_back(Tensor file) {
    const std::lock_guard lock(mutex);
    free[file.numel()].push_back(std::move(file));
  }

  std::mutex mutex;
  std::map<int64_t, std::vector<Tensor>> free;  // by bytes
};

struct InputStore::Stored {
  Tensor here;  // on a GPU, until the copy is done
  Tensor there;
  Download leaving;
  Upload coming;
  std::weak_ptr<Stored> before;  // the one that was stored before it: the next to be asked for

  // Frees the device's memory once the copy is done.
  void leave() {
    if (!here.defined()) return;
    leaving.wait();
    here = {};
  }
  void begin_to_come(Device device) {
    if (device == Device{}) read_ahead(there);
    else if (!here.defined() && !coming.source().defined()) coming = Upload(there, device);
  }
  Tensor take(Device device) {
    if (device == Device{} || here.defined()) return here.defined() ? here : there;
    if (!coming.source().defined()) coming = Upload(there, device);
    return coming.take();
  }
};

InputStore::InputStore(Offload offload) : offload_(std::move(offload)), files_(std::make_shared<Files>()) {}
InputStore::~InputStore() = default;

std::function<Tensor()> InputStore::put(Tensor input) {
  const Device device = input.device();
  invariant(offload_.elsewhere(device), "inputs are stored elsewhere");
  const auto stored = std::make_shared<Stored>();
  stored->before = newest_;
  stored->there = offload_.to == Offload::To::file ? files_->take(input.shape(), input.dtype(), offload_.folder)
                                                   : page_locked(input.shape(), input.dtype(), device);
  if (device == Device{}) {
    copy(input, stored->there);
    hand_back(stored->there);
  } else {
    stored->here = input.to_contiguous();
    stored->leaving = Download(stored->here, stored->there);
  }
  if (stored->here.defined()) leaving_.push_back(stored);
  for (; leaving_.size() > kLeaving; leaving_.pop_front())
    if (const auto earlier = leaving_.front().lock()) earlier->leave();
  newest_ = stored;
  return [stored, device] {
    if (const auto next = stored->before.lock()) next->begin_to_come(device);
    return stored->take(device);
  };
}

}  // namespace elinvar
