#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "data/permutation.h"
#include "data/prefetch_tuner.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tensor/base/threads.h"

namespace elinvar {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMostReaders = 16;  // unless the options set more

}  // namespace

// A window of upcoming batches, in the order in which they will probably be requested. Readers fill it from the front.
// batch() takes the front, or discards the window if another batch is requested.
struct Loader::Readers {
  struct Slot {
    Cursor at;
    int vrank;
    enum class State { waiting, working, done } state = State::waiting;
    Batch batch = {};
    std::exception_ptr error = {};
  };

  const Loader& loader;
  std::mutex mutex;
  std::condition_variable_any work, done;
  std::deque<std::shared_ptr<Slot>> window;  // readers keep their slots alive when the window is discarded
  Cursor next;                               // the batch that enters the window next
  int next_vrank = 0;
  int first, count;
  PrefetchSettings settings;
  std::optional<PrefetchTuner> tuner;  // used by the thread that requests batches
  std::string trouble;                 // why the first readers could not start; not reported yet
  std::optional<Clock::time_point> last;
  std::vector<std::jthread> threads;  // last, so that they end before the members that they use

  explicit Readers(const Loader& l) : loader(l), first(0), count(l.options_.virtual_ranks) {
    trouble = become({l.options_.threads, l.options_.prefetch});
    if (l.options_.tuned && trouble.empty())
      tuner.emplace(settings, std::max(l.options_.threads, std::min(usable_threads(), kMostReaders)));
  }

  // Starts readers as needed; uses fewer if one cannot be started, since they affect speed only. Returns why, or "".
  std::string become(const PrefetchSettings& other) {
    std::string why;
    try {
      for (int i = static_cast<int>(threads.size()); i < other.threads; ++i)
        threads.push_back(start_thread("reader", [this, i](const std::stop_token& stop) { run(stop, i); }));
    } catch (const Failure& no_more) {
      why = fmt::format("{} instead of {} read: {}", threads.size(), other.threads, no_more.what());
    }
    const std::lock_guard lock(mutex);
    settings = other;
    settings.threads = std::min(other.threads, static_cast<int>(threads.size()));
    work.notify_all();
    return why;
  }

  // Called when the batch at the front, requested at `asked`, is ready. Returns what changed and why, or "".
  std::string tune(Clock::time_point asked) {
    if (!trouble.empty()) return std::exchange(trouble, {});
    if (!tuner) return "";
    const auto now = Clock::now(), before = std::exchange(last, now).value_or(asked);
    const auto seconds = [&](Clock::time_point since) { return std::chrono::duration<double>(now - since).count(); };
    const std::optional<PrefetchSettings> better = tuner->record(seconds(asked), seconds(before));
    if (!better) return "";
    const std::string why_not = become(*better);
    if (why_not.empty()) return tuner->reason();
    tuner.reset();
    return why_not;
  }

  static void fill(const Loader& loader, Slot& slot) {
    try {
      slot.batch = loader.make(slot.at, slot.vrank);
    } catch (...) {
      slot.error = std::current_exception();
    }
  }

  std::shared_ptr<Slot> first_waiting() const {
    for (const auto& slot : window)
      if (slot->state == Slot::State::waiting) return slot;
    return nullptr;
  }

  void run(const std::stop_token& stop, int reader) {
    CpuStream own(1);  // a reader never takes part in the team of threads that computes
    StreamScope scope(own);
    std::unique_lock lock(mutex);
    std::shared_ptr<Slot> slot;
    const auto has_work = [&] { return reader < settings.threads && (slot = first_waiting()) != nullptr; };
    while (work.wait(lock, stop, has_work)) {
      slot->state = Slot::State::working;
      lock.unlock();
      fill(loader, *slot);
      lock.lock();
      slot->state = Slot::State::done;
      done.notify_all();
      slot.reset();
    }
  }

  void advance_next() {
    if (++next_vrank >= first + count) {
      next_vrank = first;
      next.samples += loader.samples(next);
      if (loader.options_.growth.every > 0) next.batch = loader.batch_of_epoch(next.samples / loader.dataset_->size());
    }
  }

  std::shared_ptr<Slot> take(const Cursor& at, int vrank) {
    std::unique_lock lock(mutex);
    std::shared_ptr<Slot> slot;
    if (!window.empty() && window.front()->at == at && window.front()->vrank == vrank) {
      slot = std::move(window.front());
      window.pop_front();
    } else {
      window.clear();
      slot = std::make_shared<Slot>(Slot{at, vrank});
      next = at;
      next_vrank = vrank;
      advance_next();
    }
    while (window.size() < static_cast<size_t>(settings.prefetch)) {
      window.push_back(std::make_shared<Slot>(Slot{next, next_vrank}));
      advance_next();
    }
    work.notify_all();
    if (slot->state == Slot::State::waiting) {  // no reader has begun: making it is quicker than waiting
      slot->state = Slot::State::working;
      lock.unlock();
      fill(loader, *slot);
    } else {
      // A reader is making it; meanwhile this thread makes batches that no reader has begun.
      while (slot->state != Slot::State::done) {
        const std::shared_ptr<Slot> other = first_waiting();
        if (!other) {
          const Activity activity("waiting for data");
          done.wait(lock, [&] { return slot->state == Slot::State::done; });
          break;
        }
        other->state = Slot::State::working;
        lock.unlock();
        fill(loader, *other);
        lock.lock();
        other->state = Slot::State::done;
      }
      lock.unlock();
    }
    send_ahead(*slot);
    return slot;
  }

  // Copies begun now overlap with computation on the batch just taken. Its own copy is first, because copies run one
  // after another. Readers no longer use finished slots. A batch without room now is sent when it is taken.
  void send_ahead(Slot& taken) {
    const Device device = loader.options_.device;
    if (device == Device{}) return;
    const auto send = [&](Batch& batch) {
      if (batch.samples > 0 && !batch.is_text() && !batch.sent.source().defined())
        batch.sent = Upload(batch.input, device);
    };
    if (!taken.error) send(taken.batch);
    std::vector<std::shared_ptr<Slot>> made;
    {
      const std::lock_guard lock(mutex);
      for (const auto& slot : window)
        if (slot->state == Slot::State::done && !slot->error) made.push_back(slot);
    }
    try {
      for (const auto& slot : made) send(slot->batch);
    } catch (const Failure&) {
    }
  }

  void expect(int from, int many) {
    std::lock_guard lock(mutex);
    if (from == first && many == count) return;
    first = from;
    count = many;
    window.clear();
  }
};

Tensor Batch::input_on(Device device) const {
  if (is_text()) return input;
  const bool there = sent.source().defined() && sent.source().shares_storage(input) && sent.device() == device;
  return there ? sent.take() : Upload(input, device).take();
}

std::vector<Tensor> Batch::further_inputs_on(Device device) const {
  std::vector<Tensor> there;
  for (const Tensor& further : further_inputs)
    there.push_back(further.dtype() == DType::i32 ? further : Upload(further, device).take());
  return there;
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  check(dataset_ != nullptr && dataset_->size() > 0, "[loader] the dataset has no samples");
  check(options_.global_batch >= 1, "[loader] batch_size must be at least 1, got {}", options_.global_batch);
  check(options_.virtual_ranks >= 1 && options_.virtual_ranks <= options_.global_batch,
        "[loader] virtual_ranks must be from 1 to batch_size = {}, got {}", options_.global_batch,
        options_.virtual_ranks);
  const BatchGrowth& growth = options_.growth;
  check(
      growth.every == 0 || (growth.every > 0 && growth.factor > 1 && growth.most >= options_.global_batch),
      "[loader] a growing batch needs every >= 0, factor > 1 and most >= batch_size = {}, got every = {}, factor = {} "
      "and most = {}",
      options_.global_batch, growth.every, growth.factor, growth.most);
  check(options_.threads >= 0 && options_.threads <= 1024, "[loader] reader threads must be from 0 to 1024, got {}",
        options_.threads);
  check(options_.prefetch >= 0 && options_.prefetch <= 4096, "[loader] prefetch must be from 0 to 4096 batches, got {}",
        options_.prefetch);
  check(options_.augment_epochs >= 0, "[loader] augment_epochs must be at least 0, got {}", options_.augment_epochs);
  check_mixing(options_.mixing, *dataset_);
  if (options_.threads > 0 && options_.prefetch > 0) readers_ = std::make_unique<Readers>(*this);
}

Loader::~Loader() = default;

int64_t Loader::steps_per_epoch() const {
  return (dataset_->size() + options_.global_batch - 1) / options_.global_batch;
}

// Calls f(batch, steps of an epoch, number of epochs) for each stage in which the batch stays the same, until f returns
// true; the last stage has kEndless epochs.
template <class F>
void Loader::each_stage(F f) const {
  constexpr int64_t kEndless = int64_t{1} << 40;
  const auto [every, factor, most] = options_.growth;
  for (int64_t batch = options_.global_batch;;) {
    const bool last = every == 0 || batch >= most;
    if (f(batch, (dataset_->size() + batch - 1) / batch, last ? kEndless : every) || last) return;
    batch = batch > most / factor ? most : batch * factor;
  }
}

int64_t Loader::batch_of_epoch(int64_t epoch) const {
  int64_t found = 0;
  each_stage([&](int64_t batch, int64_t, int64_t epochs) {
    found = batch;
    return (epoch -= epochs) < 0;
  });
  return found;
}

Cursor Loader::cursor(int64_t step) const {
  check(step >= 0, "[loader] step must not be negative, got {}", step);
  int64_t epochs_before = 0;
  Cursor at;
  each_stage([&](int64_t batch, int64_t steps, int64_t epochs) {
    if (step / steps >= epochs) {
      epochs_before += epochs;
      step -= epochs * steps;
      return false;
    }
    at = {.samples = (epochs_before + step / steps) * dataset_->size() + step % steps * batch, .batch = batch};
    return true;
  });
  return at;
}

double Loader::steps_in(double epochs) const {
  double all = 0;
  each_stage([&](int64_t, int64_t steps, int64_t stage) {
    const double here = std::min(epochs, static_cast<double>(stage));
    all += here * static_cast<double>(steps);
    return (epochs -= here) <= 0;
  });
  return all;
}

int64_t Loader::step_at(int64_t samples) const {
  const int64_t size = dataset_->size();
  return samples / size * steps_per_epoch() + samples % size / options_.global_batch;
}

int64_t Loader::samples(const Cursor& at) const {
  check(at.samples >= 0 && at.batch >= 1,
        "[loader] expected a batch of at least 1 after at least 0 samples, got {}, {}", at.batch, at.samples);
  return std::min(at.batch, dataset_->size() - at.samples % dataset_->size());
}

Loader::Slice Loader::slice(const Cursor& at, int vrank) const {
  check(vrank >= 0 && vrank < options_.virtual_ranks, "[loader] virtual rank {} is none of the {}", vrank,
        options_.virtual_ranks);
  const int64_t m = samples(at), start = at.samples % dataset_->size();
  return {at.samples / dataset_->size(), start + m * vrank / options_.virtual_ranks,
          start + m * (vrank + 1) / options_.virtual_ranks};
}

int64_t Loader::samples(const Cursor& at, int vrank) const {
  const Slice s = slice(at, vrank);
  return s.end - s.begin;
}

int64_t Loader::index(int64_t epoch, int64_t position) const {
  check(position >= 0 && position < dataset_->size(), "[loader] position {} is outside the epoch of {} samples",
        position, dataset_->size());
  if (!options_.shuffle) return position;
  return Permutation(dataset_->size(), options_.seed, static_cast<uint64_t>(epoch))(position);
}

Batch Loader::make(const Slice& s, const Mixing& mixing) const {
  const Activity activity("making a batch");
  const int64_t n = s.end - s.begin;
  const auto batched = [&](Shape shape) {
    shape.insert(0, n);
    return shape;
  };
  const SampleFormat format = dataset_->format();
  Batch batch{.input = page_locked(batched(format.inputs[0].shape), format.inputs[0].dtype, options_.device),
              .target = Tensor::empty(batched(format.target.shape), format.target.dtype),
              .samples = n};
  for (const Field& field : std::span(format.inputs).subspan(1))
    batch.further_inputs.push_back(page_locked(batched(field.shape), field.dtype, options_.device));
  const auto sample_of = [](Tensor& tensor, const Field& field, int64_t i) -> void* {
    return static_cast<char*>(tensor.raw()) + i * field.shape.numel() * size_of(field.dtype);
  };
  const bool early = options_.augment_epochs == 0 || s.epoch < options_.augment_epochs;
  const Draw draw{options_.seed, s.epoch, options_.augment && early};
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < n; ++i) {
    indices.push_back(index(s.epoch, s.begin + i));
    SampleBuffers sample(sample_of(batch.input, format.inputs[0], i), sample_of(batch.target, format.target, i));
    for (size_t k = 0; k < batch.further_inputs.size(); ++k)
      sample.inputs.push_back(sample_of(batch.further_inputs[k], format.inputs[k + 1], i));
    dataset_->read(indices.back(), draw, sample);
  }
  if (draw.augment && mixing.any() && n > 1) batch.mixed = mix(mixing, indices, draw, batch.target, batch.input);
  return batch;
}

Batch Loader::batch(const Cursor& at, int vrank) {
  const Activity activity("data");
  slice(at, vrank);  // refuses arguments out of range before anything is prepared
  if (!readers_) return make(at, vrank);
  const auto asked = Clock::now();
  const auto slot = readers_->take(at, vrank);
  if (std::string news = readers_->tune(asked); !news.empty()) news_ = std::move(news);
  if (slot->error) std::rethrow_exception(slot->error);
  return std::move(slot->batch);
}

Batch Loader::whole_batch(const Cursor& at) const {
  const int64_t start = at.samples % dataset_->size();
  return make(Slice{at.samples / dataset_->size(), start, start + samples(at)}, {});
}

void Loader::expect(int first, int count) {
  check(first >= 0 && count >= 1 && first + count <= options_.virtual_ranks,
        "[loader] [{}, {}) is no interval of the {} virtual ranks", first, first + count, options_.virtual_ranks);
  if (readers_) readers_->expect(first, count);
}

}  // namespace elinvar
