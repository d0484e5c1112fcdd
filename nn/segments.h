#pragma once
// A network as a list of segments, one after another, and a head. Between any two of them a single value passes, whose
// first extent is the number of samples, so that a pipeline may cut the network there and give its parts to several
// workers (NUMERICS.md, rule 28).
//
//   for (int64_t i = 0; i < layers; ++i) {
//     blocks_.emplace_back(scope / "h" / i, options);
//     add_segment("h." + std::to_string(i), [this, i](Residual x, Context& c) { return run_block(blocks_[i], x, c); });
//   }
//   logits_ = Linear(scope / "head", channels, classes);
//   add_head();
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nn/network.h"
#include "nn/residual.h"

namespace elinvar {

struct Segment {
  std::string name;
  // The value of the segment before it, or the input -> its own value. Undefined for the head.
  std::function<Residual(Residual, Context&)> run = {};
  std::vector<size_t> parameters = {};  // those that it reads, as indices in Parameters::list, ascending
  // Segments of the same kind whose parameters have the same shapes do the same to inputs of the same shape; "":
  // unknown.
  std::string kind = {};
};

// The forward pass through one segment, for Context::segments.
class RunningSegment {
 public:
  explicit RunningSegment(Context& context)
      : context_(context), statistics_(context.statistics.size()), began_(Clock::now()) {}
  void ended(Shape value = {}) {
    context_.segments.push_back({.seconds = std::chrono::duration<double>(Clock::now() - began_).count(),
                                 .value = std::move(value),
                                 .statistics = context_.statistics.size() - statistics_});
  }

 private:
  using Clock = std::chrono::steady_clock;
  Context& context_;
  size_t statistics_;
  Clock::time_point began_;
};

class SegmentedNetwork : public Network {
 public:
  Var forward(const Tensor& input, Context& context) const final { return joined(sharded_logits(input, context)); }
  ShardedLogits sharded_logits(const Tensor& input, Context& context) const final;

  // The segments, in the order in which they run. The last one is the head, which gives logits.
  const std::vector<Segment>& segments() const { return segments_; }
  virtual ShardedLogits head(Residual x, Context& context) const = 0;

 protected:
  // Called while the network is built, in the order in which the segments run: a segment reads the parameters that were
  // created since the call before, and `shared` ones, given by a part of their names up to a dot or the end.
  void add_segment(std::string name, std::function<Residual(Residual, Context&)> run,
                   const std::vector<std::string>& shared = {}, std::string kind = {});
  void add_head(const std::vector<std::string>& shared = {}) { add_segment("head", {}, shared); }

 private:
  std::vector<Segment> segments_;
  size_t claimed_ = 0;  // parameters that belong to a segment
};

}  // namespace elinvar
