// Checkpoints that become whole once their slices and the agreed state are known.
#include <gtest/gtest.h>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/part_stream.h"
#include "elastic/run/run_directory.h"
#include "tests/elastic/sliced_state.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::sliced::cut;
using test::sliced::kStep;
using test::sliced::replicated;
using test::sliced::sharded;
using test::sliced::whole;

// Two workers report their parts of the state after three updates.
struct CommittedInSlices : testing::Test {
  CommittedInSlices() {
    directory.facts().begin({}, {}, 10);
    for (int64_t step = 0; step < kStep; ++step)
      directory.facts().record({StepFacts{
          .step = step, .update = UpdateFacts{.batch = {1, static_cast<uint64_t>(step)}}, .report = {.lr = 0.5}}});
  }
  // The whole state is agreed on in the trailer of the step that follows.
  void agree(const StateDict& state) {
    StepFacts next{.step = kStep, .update = UpdateFacts{.batch = {1, 3}}, .report = {.lr = 0.5}};
    const StateSum sum = state_sum(digests_of(state));
    next.state = sum.digest;
    next.state_digests = sum.parts;
    directory.facts().record({next});
  }
  std::vector<CheckpointCommitter::Settled> save(const std::vector<std::vector<StateSlice>>& slices,
                                                 const std::optional<Digest>& attested = {}) {
    std::vector<CheckpointCommitter::Settled> settled;
    for (int part = 0; part < 2; ++part) {
      const StateDict mine = part_of(replicated(), part, 2);
      const std::vector<StateSlice>& held = slices[static_cast<size_t>(part)];
      const CheckpointPart written = store.write_part(kStep, part_file(part, 2), mine, held);
      const messages::Saved saved{.part = part,
                                  .parts = 2,
                                  .file = written.file,
                                  .bytes = written.bytes,
                                  .digest = written.digest,
                                  .digests = to_text(digests_of(mine)),
                                  .slices = slice_digests(held),
                                  .state = attested};
      settled = directory.checkpoints().saved(kStep, saved);
    }
    return settled;
  }
  using Settled = std::vector<CheckpointCommitter::Settled>;

  test::TemporaryFolder folder;
  std::mt19937 random{4};
  RunDirectory directory{{.path = folder / "run", .state_digest_every = 3, .checkpoint_every = 3, .keep = 2},
                         {.run = 1}};
  CheckpointStore store{folder / "run" / "checkpoints"};
};

TEST_F(CommittedInSlices, OnceTheStateIsAgreed) {
  EXPECT_EQ(save(cut(2, random)), Settled());
  agree(whole());
  EXPECT_EQ(directory.checkpoints().commit(), (Settled{{kStep, ""}}));
  EXPECT_EQ(digest(store.read(kStep).state), digest(whole()));
  EXPECT_NE(read_file(folder / "run" / "checkpoints" / "step-3" / "manifest.json").find("\"format\": 2"),
            std::string::npos);
}

TEST_F(CommittedInSlices, WhereTheRunStopsTheWorkersAttestWhatTheyHoldWhole) {
  EXPECT_EQ(save(cut(2, random), digest(replicated())), (Settled{{kStep, ""}}));
  EXPECT_EQ(store.read(kStep).digest, digest(whole()));
  EXPECT_EQ(directory.facts().line(kStep).state, digest(whole()));
}

TEST_F(CommittedInSlices, NotIfTheWorkersHoldSomethingElseWhole) {
  EXPECT_EQ(save(cut(2, random), digest(sharded())),
            (Settled{{kStep, "what was saved is not the state that the workers agree on"}}));
}

TEST_F(CommittedInSlices, NotIfTheStateIsAnother) {
  agree(replicated());
  EXPECT_EQ(save(cut(2, random)), (Settled{{kStep, "what was saved is not the state that the workers agree on"}}));
}

TEST_F(CommittedInSlices, NotIfASliceIsMissingOrThereTwice) {
  std::vector<std::vector<StateSlice>> slices = cut(2, random);
  std::vector<StateSlice>& some = slices[slices[0].empty() ? 1 : 0];
  const StateSlice last = some.back();
  const std::string name = slice_name(last.tensor, last.begin, last.end);
  some.pop_back();
  agree(whole());
  EXPECT_EQ(save(slices), (Settled{{kStep, "[state] " + name + " is missing"}}));
  for (std::vector<StateSlice>& of_part : slices) of_part.push_back(last);
  EXPECT_EQ(save(slices), (Settled{{kStep, "[state] " + name + " is there twice"}}));
  slices[0].pop_back();
  EXPECT_EQ(save(slices), (Settled{{kStep, ""}}));
}

}  // namespace
}  // namespace elinvar
