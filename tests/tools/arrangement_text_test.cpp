// `train ctl RUN status --arrangement`: the picture of a job's status in the terminal.
#include "tools/launch/arrangement_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tests/support/lines.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

Json status(Json arrangement, const std::vector<Json>& workers) {
  Json json = {{"run", "small"},  {"phase", "running"}, {"step", 32},        {"steps", 150},
               {"generation", 3}, {"virtual_ranks", 8}, {"workers", workers}};
  if (!arrangement.empty()) json["arrangement"] = std::move(arrangement);
  return json;
}

Json worker(int id, const std::string& state, Json more = Json::object()) {
  Json json = {{"id", id}, {"state", state}, {"resident_bytes", 100 << 20}, {"about", {{"pid", 7}, {"name", ""}}}};
  json.update(more);
  return json;
}

// A member of a stage with half of four virtual shards.
Json member(int id, int stage, int shard, const Json& segments, double work) {
  return worker(id, "member",
                {{"ranks", {{0, 8}}},
                 {"part", work / 2},
                 {"replica", 0},
                 {"stage", stage},
                 {"stage_work", work},
                 {"virtual_shards", {shard, shard + 2}},
                 {"segments", segments}});
}

TEST(ArrangementText, ShowsStagesAndTheirMembers) {
  const Json first = {{1, 3}}, second = {{0, 1}, {3, 5}};
  Json job = status({{"tp", 2}, {"pp", 2}}, {member(1, 0, 0, first, 0.5), member(2, 0, 2, first, 0.5),
                                             member(3, 1, 0, second, 0.5), member(4, 1, 2, second, 0.5)});
  job["segments"] = {"embeddings", "h.0", "h.1", "h.2", "head"};
  EXPECT_EQ(arrangement_text(job),
            "small: running, step 32 of 150, generation 3\n"
            "8 virtual ranks on 1 model replica of up to tp=2, pp=2\n"
            "\n"
            "model replica 0: virtual ranks 0-7; 100.0 % of a step\n"
            "  stage 0: segments 1-2 (h.0 to h.1); 50.0 % of a rank gradient\n"
            "    worker  state      virtual shards     part       memory\n"
            "         1  member     0-1              25.0 %      100 MiB\n"
            "         2  member     2-3              25.0 %      100 MiB\n"
            "  stage 1: segments 0, 3-4 (embeddings and h.2 to head); 50.0 % of a rank gradient\n"
            "    worker  state      virtual shards     part       memory\n"
            "         3  member     0-1              25.0 %      100 MiB\n"
            "         4  member     2-3              25.0 %      100 MiB\n");
}

TEST(ArrangementText, ShowsWhoKeepsBucketsAndWhoComesAndGoes) {
  const auto keeps = [](int id, const std::string& state, const Json& ranks, double part, int kept) {
    return worker(id, state, {{"ranks", ranks}, {"part", part}, {"buckets", 50}, {"buckets_kept", kept}});
  };
  const Json guest = worker(0, "learning", {{"about", {{"pid", 812}, {"name", "guest"}}}, {"resident_bytes", 0}});
  const std::string text =
      arrangement_text(status({{"zero", 1}, {"copies", 2}}, {guest, keeps(1, "member", {{0, 4}, {7, 8}}, 0.625, 50),
                                                             keeps(2, "draining", {{4, 7}}, 0.375, 50)}));
  EXPECT_EQ(text,
            "small: running, step 32 of 150, generation 3\n"
            "8 virtual ranks on 2 workers that compute all of the network\n"
            "zero=1: 2 copies of the optimizer's state\n"
            "\n"
            "  worker  state      virtual ranks            part       memory  buckets kept\n"
            "       1  member     0-3, 7                 62.5 %      100 MiB  50 of 50, 100 %\n"
            "       2  draining   4-6                    37.5 %      100 MiB  50 of 50, 100 %\n"
            "\n"
            "joining: pid 812 (guest, learning)\n"
            "leaving: worker 2 (draining)\n");
}

TEST(ArrangementText, KeepsToTheColumnsOfATerminal) {
  Json ranks = Json::array();
  for (int i = 0; i < 100; ++i) ranks.push_back({3 * i, 3 * i + 2});
  std::vector<Json> workers = {
      worker(1, "member", {{"ranks", ranks}, {"part", 1.0}, {"buckets", 20000}, {"buckets_kept", 12345}})};
  for (int i = 0; i < 40; ++i)
    workers.push_back(worker(0, "joining", {{"about", {{"pid", 400000 + i}, {"name", "guest"}}}}));
  Json segments = Json::array();
  for (int i = 0; i < 50; ++i) segments.push_back({2 * i, 2 * i + 1});
  std::vector<Json> stages = {member(1, 0, 0, segments, 1)};
  for (const Json& w : workers)
    if (w["id"] == 0) stages.push_back(w);
  Json divided = status({{"tp", 1}, {"pp", 2}}, stages);
  divided["segments"] = std::vector<std::string>(100, "a_segment_with_a_long_name");
  for (const std::string& text :
       {arrangement_text(status({{"zero", 3}, {"copies", 2}}, workers)), arrangement_text(divided)})
    for (const std::string& line : test::lines_of(text)) EXPECT_LE(line.size(), 100u) << line;
}

TEST(ArrangementText, BeforeTheFirstGeneration) {
  Json job = status({}, {worker(0, "joining")});
  job["generation"] = 0;
  EXPECT_EQ(arrangement_text(job),
            "small: running, step 32 of 150, generation 0\n"
            "no worker takes part yet\n"
            "\n"
            "joining: pid 7 (joining)\n");
  job.erase("virtual_ranks");
  EXPECT_THROW(arrangement_text(job), UsageError) << "of an older program";
}

}  // namespace
}  // namespace elinvar
