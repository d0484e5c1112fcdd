#include "data/prefetch_tuner.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr double kObserve = 3;         // least seconds before a decision
constexpr int kLeastBatches = 16;      // least batches before a decision
constexpr double kMuchWaiting = 0.05;  // fraction of time
constexpr double kFaster = 0.02;       // fraction by which one more reader must shorten the time per batch

}  // namespace

std::optional<PrefetchSettings> PrefetchTuner::record(double waited, double seconds) {
  if (settled_) return {};
  waited_ += waited;
  seconds_ += seconds;
  if (++batches_ < kLeastBatches || seconds_ < kObserve) return {};
  const double share = waited_ / seconds_, batch = seconds_ / batches_;
  waited_ = seconds_ = batches_ = 0;
  if (before_ && batch > (1 - kFaster) * batch_before_) {
    settled_ = true;
    reason_ = fmt::format("{} readers are no faster than {}: {:.3g} s a batch, {:.3g} before", now_.threads,
                          before_->threads, batch, batch_before_);
    return now_ = *before_;
  }
  before_.reset();
  if (share <= kMuchWaiting || now_.threads >= most_) return {};
  before_ = now_;
  batch_before_ = batch;
  now_ = {now_.threads + 1, std::max(now_.prefetch, 4 * (now_.threads + 1))};
  reason_ = fmt::format("{:.0f} % of the time goes by waiting for data: {} readers make {} batches ahead", 100 * share,
                        now_.threads, now_.prefetch);
  return now_;
}

}  // namespace elinvar
