#pragma once
// Records the ops of a step, and the tensors of one of them.
#include <optional>
#include <string>
#include <vector>

#include "tools/trace/reproducer.h"
#include "tools/trace/trace_file.h"

namespace elinvar {

class Tracer final : public Recorder {
 public:
  explicit Tracer(std::optional<size_t> keep = {}) : keep_(keep) {}

  // Sets the phase of the ops that follow: "leaf 3", "reduction", "update".
  void at(std::string phase) { phase_ = std::move(phase); }

  void begins(const AnyOp& op, const TraceValues& arguments) override;
  void ends(const TraceValues& results, const OpWork& work) override;

  std::vector<TracedOp> take_ops() { return std::move(ops_); }
  // Returns the op to keep, as a reproducer with one side.
  const std::optional<Reproducer>& kept() const { return kept_; }

 private:
  std::optional<size_t> keep_;
  std::string phase_;
  std::vector<TracedOp> ops_;
  std::optional<Reproducer> kept_;
};

}  // namespace elinvar
