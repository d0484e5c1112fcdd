#pragma once
// Scores on the validation split while a run trains. Each virtual rank scores its share of the split (score() of
// tools/training/job.h); a share travels with the facts of the virtual rank's gradient, and all of them are the score.
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "elastic/session/session.h"
#include "tools/training/training.h"

namespace elinvar {

class Validation {
 public:
  Validation(const Training& training, std::shared_ptr<const Dataset> split);

  // Whether this step is scored: every run.eval_every steps, and at the end.
  bool due(const StepView& step) const;
  // For RankFacts::attached.
  nlohmann::json share(int vrank) const;
  // Of the shares in the facts of all virtual ranks.
  ValidationScore score(const std::vector<RankFacts>& facts) const;

 private:
  const Training& training_;
  std::shared_ptr<const Dataset> split_;
};

}  // namespace elinvar
