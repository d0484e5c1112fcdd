#pragma once
// Parameters that are in memory only while they are used (ZeRO-3, FSDP). A pass through a network's segments
// (nn/stage.h) has the parameters of one segment at a time, and those of the next one, whose values arrive meanwhile.
//
//   const OutlineScope no_values;              // or a network that has values, once `source` has them
//   const auto network = build(...);
//   Residence residence(*network, source);
//   micro_batch_gradient(*network, input, targets, ..., &residence);
//
// The source has the values, for example slices on several workers. Not thread-safe.
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "nn/segments.h"

namespace elinvar {

// Parameters are indices in Parameters::list, of one or more whole parameters each.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  // Begins to write the values of these parameters into their tensors, which have memory. If it throws, it writes
  // nothing.
  virtual void request(std::span<const size_t> parameters) = 0;
  // Returns when the values of these parameters, which are requested, are in their tensors.
  virtual void wait(std::span<const size_t> parameters) = 0;
  // These parameters, which are requested, are not wanted any more. Their memory goes when this returns. Must not
  // throw.
  virtual void cancel(std::span<const size_t> parameters) = 0;
};

class Residence {
 public:
  // Frees the memory of all parameters. Only parameters of the group's own virtual shards are ever requested, and no
  // sparse tables, whose rows are looked up elsewhere (TouchedRows::fetch_by).
  Residence(const SegmentedNetwork& network, ParameterSource& source, const ShardGroup& group = local_shards());
  ~Residence();  // all parameters are absent
  Residence(const Residence&) = delete;
  Residence& operator=(const Residence&) = delete;

  const SegmentedNetwork& network() const { return network_; }

  // Returns when the parameters of a segment are there, and requests those of the one that is entered next. That may be
  // the same one: then its parameters stay when it is left. What had been requested for another one is cancelled.
  void enter(size_t segment, std::optional<size_t> next);
  // Frees the memory of parameters that neither another segment in use nor the next one reads.
  void leave(size_t segment);

 private:
  struct Holding {
    int users = 0;       // segments in use, and the next one
    bool there = false;  // the values have arrived
  };
  Tensor& tensor(size_t parameter) const;
  void hold(size_t segment);
  void drop(size_t segment);

  const SegmentedNetwork& network_;
  ParameterSource& source_;
  std::vector<std::vector<size_t>> read_;  // the parameters of each segment
  std::vector<Holding> holdings_;          // of each parameter
  std::optional<size_t> next_;
};

// The parameters of a network that is no list of segments, in memory as long as this object lives.
class WholeResidence {
 public:
  // Returns when all parameters of the group's own virtual shards are there, but for sparse tables.
  WholeResidence(const Network& network, ParameterSource& source, const ShardGroup& group = local_shards());
  ~WholeResidence();  // all parameters are absent
  WholeResidence(const WholeResidence&) = delete;
  WholeResidence& operator=(const WholeResidence&) = delete;

 private:
  void release();

  const Network& network_;
  std::vector<size_t> read_;
};

// A segment between enter() and leave(). Without a residence, which may be null, does nothing.
class SegmentInUse {
 public:
  SegmentInUse(Residence* residence, size_t segment, std::optional<size_t> next)
      : residence_(residence), segment_(segment) {
    if (residence_) residence_->enter(segment_, next);
  }
  ~SegmentInUse() {
    if (residence_) residence_->leave(segment_);
  }
  SegmentInUse(const SegmentInUse&) = delete;
  SegmentInUse& operator=(const SegmentInUse&) = delete;

 private:
  Residence* residence_;
  size_t segment_;
};

}  // namespace elinvar
