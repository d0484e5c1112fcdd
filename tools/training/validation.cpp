#include "tools/training/validation.h"

#include <bit>
#include <utility>

#include "tensor/base/activity.h"

namespace elinvar {

using Json = nlohmann::json;

Validation::Validation(const Training& training, std::shared_ptr<const Dataset> split)
    : training_(training), split_(std::move(split)) {}

bool Validation::due(const StepView& step) const {
  return step.number > 0 && !step.replays &&
         (step.last || elinvar::due(step.number, training_.config().run.eval_every));
}

Json Validation::share(int vrank, ShardGroup& group) const {
  const TimedActivity activity("an evaluation");
  Json json = Json::array();
  for (const BatchScore& s : elinvar::score(training_.setup, split_, vrank, training_.config().run.virtual_ranks,
                                            /*mirror=*/false, /*each=*/{}, group))
    json.push_back({std::bit_cast<uint64_t>(s.loss_sum), s.count, s.correct, s.samples});
  return json;
}

ValidationScore Validation::score(const std::vector<RankFacts>& facts) const {
  std::vector<BatchScore> scores;
  for (const RankFacts& share : facts)
    for (const Json& s : *share.attached)
      scores.push_back({std::bit_cast<double>(s.at(0).get<uint64_t>()), s.at(1).get<int64_t>(), s.at(2).get<int64_t>(),
                        s.at(3).get<int64_t>()});
  const Score total = sum(scores);
  return {.loss = total.loss, .accuracy = total.accuracy, .samples = total.samples};
}

}  // namespace elinvar
