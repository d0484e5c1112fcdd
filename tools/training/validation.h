#pragma once
// Scores the validation split while a run trains. Each virtual rank scores its share of the split (score() of
// tools/training/training_setup.h). The share's score travels with the facts of the rank gradient; the shares of all
// virtual ranks together give the score.
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "elastic/session/session.h"
#include "tools/training/training.h"

namespace elinvar {

class Validation {
 public:
  Validation(const Training& training, std::shared_ptr<const Dataset> split);

  // Returns whether this step is scored: every run.eval_every steps, and at the end.
  bool due(const StepView& step) const;
  // Returns the score of a virtual rank's share, for RankFacts::attached. The processes of the `group` compute it
  // together.
  nlohmann::json share(int vrank, ShardGroup& group) const;
  // Combines the shares in the facts of all virtual ranks.
  ValidationScore score(const std::vector<RankFacts>& facts) const;

 private:
  const Training& training_;
  std::shared_ptr<const Dataset> split_;
};

}  // namespace elinvar
