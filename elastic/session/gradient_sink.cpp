#include "elastic/session/gradient_sink.h"

#include <algorithm>

namespace elinvar {

bool GradientSink::begin() {
  plan_ = plan();
  gradients_.clear();
  batch_statistics_.clear();
  arriving_statistics_.clear();
  arriving_.clear();
  count_ = 0;
  open_ = false;
  return plan_.place == Place::cpu || plan_.receiver != nullptr;
}

void GradientSink::forward(int64_t count, const std::vector<Tensor>& batch_statistics, const Mark& since) {
  if (plan_.place == Place::device && plan_.receiver != nullptr)
    return plan_.receiver->open(count, batch_statistics, since);
  if (plan_.place == Place::device) {
    batch_statistics_ = batch_statistics;
    return;
  }
  count_ = count;
  for (const Tensor& statistic : batch_statistics)
    arriving_statistics_.push_back(statistic.defined() ? Download(statistic, since) : Download());
  if (std::ranges::all_of(arriving_statistics_, [](Download& statistic) { return statistic.ready(); })) open();
}

void GradientSink::gradient(size_t parameter, Tensor gradient, const Mark& since) {
  if (plan_.place == Place::device && plan_.receiver != nullptr)
    return plan_.receiver->put(parameter, std::move(gradient), since);
  if (plan_.place == Place::device) return keep(parameter, std::move(gradient));
  arriving_.emplace_back(parameter, Download(std::move(gradient), since));
  while (!arriving_.empty() && arriving_.front().second.ready()) pass_on();
}

void GradientSink::end(std::vector<Tensor> gradients, std::vector<Tensor> batch_statistics) {
  if (plan_.place == Place::device) {
    if (!gradients.empty()) gradients_ = std::move(gradients);
    if (!batch_statistics.empty()) batch_statistics_ = std::move(batch_statistics);
    return;
  }
  open();
  while (!arriving_.empty()) pass_on();
}

void GradientSink::open() {
  if (std::exchange(open_, true)) return;
  for (Download& statistic : arriving_statistics_) batch_statistics_.push_back(statistic.wait());
  if (plan_.receiver != nullptr) plan_.receiver->open(count_, batch_statistics_, {});
}

void GradientSink::pass_on() {
  open();
  auto [parameter, download] = std::move(arriving_.front());
  arriving_.pop_front();
  Tensor gradient = download.wait();
  if (plan_.receiver != nullptr) return plan_.receiver->put(parameter, std::move(gradient), {});
  keep(parameter, std::move(gradient));
}

void GradientSink::keep(size_t parameter, Tensor gradient) {
  gradients_.resize(std::max(gradients_.size(), parameter + 1));
  gradients_[parameter] = std::move(gradient);
}

RankGradient GradientSink::take(RankFacts facts) {
  return {
      .gradients = std::move(gradients_), .batch_statistics = std::move(batch_statistics_), .facts = std::move(facts)};
}

}  // namespace elinvar
