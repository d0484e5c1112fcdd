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

// Tallies and loads are exact in any order, so those of the whole share are with its first batch.
Json Validation::share(int vrank, ShardGroup& group) const {
  const TimedActivity activity("an evaluation");
  std::vector<BatchScore> scores = elinvar::score(training_.setup, split_, vrank, training_.config().run.virtual_ranks,
                                                  /*mirror=*/false, /*each=*/{}, group);
  for (size_t i = 1; i < scores.size(); ++i) {
    for (const auto& [index, number] : std::exchange(scores[i].tallies, {})) scores[0].tallies[index] += number;
    add_loads(scores[0].loads, std::exchange(scores[i].loads, {}));
  }
  Json json = Json::array();
  for (const BatchScore& s : scores) {
    std::vector<uint64_t> sums;
    for (const double sum : s.sums) sums.push_back(std::bit_cast<uint64_t>(sum));
    json.push_back({std::bit_cast<uint64_t>(s.loss_sum), s.count, s.correct, s.samples, sums,
                    std::vector(s.tallies.begin(), s.tallies.end())});
    for (const auto& [choices, dropped] : s.loads) json.back().push_back({choices, dropped});
  }
  return json;
}

ValidationScore Validation::score(const std::vector<RankFacts>& facts) const {
  std::vector<BatchScore> scores;
  for (const RankFacts& share : facts)
    for (const Json& s : *share.attached) {
      BatchScore& score = scores.emplace_back(BatchScore{.loss_sum = std::bit_cast<double>(s.at(0).get<uint64_t>()),
                                                         .count = s.at(1).get<int64_t>(),
                                                         .correct = s.at(2).get<int64_t>(),
                                                         .samples = s.at(3).get<int64_t>()});
      for (const Json& sum : s.at(4)) score.sums.push_back(std::bit_cast<double>(sum.get<uint64_t>()));
      for (const auto& [index, number] : s.at(5).get<std::vector<std::pair<int64_t, int64_t>>>())
        score.tallies[index] = number;
      for (size_t i = 6; i < s.size(); ++i)
        score.loads.push_back({s.at(i).at(0).get<std::vector<int64_t>>(), s.at(i).at(1).get<int64_t>()});
    }
  return sum(scores, training_.setup.task);
}

}  // namespace elinvar
