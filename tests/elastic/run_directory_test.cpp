#include "elastic/run/run_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "elastic/checkpoint/state_parts.h"
#include "elastic/ledger/ledger.h"
#include "elastic/run/term.h"
#include "tensor/base/check.h"
#include "tests/support/disk_faults.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::flip_byte;

// The facts of a run of ten updates whose state is one number, as workers report them.
struct Toy {
  static StateDict state(int64_t step) {
    return {{"model.weight", Tensor::full({3}, static_cast<double>(step) * 1.5)},
            {"step", Tensor::from(std::vector<int64_t>{step}, {})}};
  }
  static bool due(int64_t step) { return step > 0 && (step == 10 || step % 2 == 0 || step % 3 == 0); }
  static StepFacts told(int64_t step) {
    StepFacts facts{.step = step, .report = {.lr = 0.5}};
    if (step < 10)
      facts.update = UpdateFacts{.batch = {1, static_cast<uint64_t>(step)},
                                 .loss = 1.0 / static_cast<double>(step + 1),
                                 .leaves = {{0, {3, static_cast<uint64_t>(step)}}},
                                 .gradient = {2, static_cast<uint64_t>(step)}};
    if (due(step)) {
      const StateSum sum = state_sum(digests_of(state(step)));
      EXPECT_EQ(sum.digest, digest(state(step)));
      facts.state = sum.digest;
      facts.state_digests = sum.parts;
    }
    const DigestLine line{.step = step + 1, .batches = "b", .losses = "l", .gradient = "g", .leaves = {{0, "f"}}};
    if (step % 2 != 0) facts.digests = line.text();
    return facts;
  }
  struct Opened : RunDirectory {
    explicit Opened(const fs::path& path, bool resume = false)
        : RunDirectory({.path = path, .state_digest_every = 2, .checkpoint_every = 3, .keep = 2, .resume = resume},
                       {.run = 1}) {
      facts().begin({}, {.tensors_every = 2}, 10);
    }
  };
  // Two workers write their parts of the state after `step` updates; the second writes that of `other` if it is given.
  // If the run `stops` there, each also reports the digest of the whole state.
  static std::vector<CheckpointCommitter::Settled> save(RunDirectory& directory, int64_t step, bool stops = false,
                                                        std::optional<int64_t> other = {}) {
    std::vector<CheckpointCommitter::Settled> settled;
    for (int part = 0; part < 2; ++part) {
      const StateDict whole = state(part == 1 ? other.value_or(step) : step), mine = part_of(whole, part, 2);
      const CheckpointPart written = CheckpointStore(directory.path() / "checkpoints")
                                         .write_part(step, "part-" + std::to_string(part) + "-of-2.safetensors", mine);
      messages::Saved saved{.part = part,
                            .parts = 2,
                            .file = written.file,
                            .bytes = written.bytes,
                            .digest = written.digest,
                            .digests = to_text(digests_of(mine))};
      if (stops) saved.state = digest(whole);
      const std::vector<CheckpointCommitter::Settled> now = directory.checkpoints().saved(step, saved);
      settled.insert(settled.end(), now.begin(), now.end());
    }
    return settled;
  }
  // Updates [from, to), with scheduled checkpoints.
  static void run(RunDirectory& directory, int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      directory.facts().record({told(step)});
      directory.checkpoints().commit();
      if (step + 1 == 10) directory.facts().record({told(10)});
      if ((step + 1) % 3 == 0 || step + 1 == 10) save(directory, step + 1);
    }
  }
};

TEST(RunDirectory, ResumesFromEveryCheckpointWithTheSameLedger) {
  const test::TemporaryFolder folder;
  {
    Toy::Opened directory(folder / "whole");
    Toy::run(directory, 0, 10);
  }
  const std::string whole = read_file(folder / "whole" / "ledger.jsonl"),
                    digests = read_file(folder / "whole" / "digests.jsonl");
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 11);
  for (int64_t stop = 0; stop <= 10; ++stop) {
    const fs::path path = folder / std::to_string(stop);
    {
      Toy::Opened directory(path);
      Toy::run(directory, 0, stop);
    }
    Toy::Opened directory(path, true);
    // A checkpoint is known to be good only after the next step.
    const int64_t first = stop == 10 ? 10 : std::max<int64_t>(stop - 1, 0) / 3 * 3;
    EXPECT_EQ(directory.start().step, first) << stop;
    Toy::run(directory, first, 10);
    EXPECT_EQ(read_file(path / "ledger.jsonl"), whole) << stop;
    EXPECT_EQ(read_file(path / "digests.jsonl"), digests) << stop;
    EXPECT_EQ(CheckpointStore(path / "checkpoints").read(10).digest, digest(Toy::state(10)));
  }
}

TEST(RunDirectory, SeveralStepsAtOnceMakeTheSameFiles) {
  const test::TemporaryFolder folder;
  for (const size_t at_once : {size_t{1}, size_t{4}, size_t{11}}) {
    Toy::Opened directory(folder / std::to_string(at_once));
    std::vector<StepFacts> steps;
    for (int64_t step = 0; step <= 10; ++step) {
      steps.push_back(Toy::told(step));
      if (steps.size() < at_once && step < 10) continue;
      const int64_t on_file = directory.facts().record(steps);  // a line may wait for the digest of its state
      if (step == 10) {
        EXPECT_EQ(on_file, 9);
      }
      steps.clear();
    }
  }
  for (const char* file : {"ledger.jsonl", "digests.jsonl"}) {
    const std::string one_by_one = read_file(folder / "1" / file);
    EXPECT_EQ(read_file(folder / "4" / file), one_by_one);
    EXPECT_EQ(read_file(folder / "11" / file), one_by_one);
  }
}

TEST(RunDirectory, ALineForDigestsThatIsDamagedOrOfAnotherStepIsRefused) {
  const test::TemporaryFolder folder;
  Toy::Opened directory(folder / "run");
  directory.facts().record({Toy::told(0)});
  StepFacts of = Toy::told(1);
  const std::string whole = of.digests;
  for (const std::string& wrong : {Toy::told(3).digests, whole.substr(1), whole + "\n{}", std::string("{}")}) {
    of.digests = wrong;
    EXPECT_THROW(directory.facts().record({of}), UsageError) << wrong;
  }
  of.digests = whole;
  EXPECT_EQ(directory.facts().record({of}), 0) << "the line waits for the digest of its state";
  EXPECT_EQ(directory.facts().record({Toy::told(2)}), 1);
}

// Facts in the same message, before the contradiction, are correct and are kept.
TEST(RunDirectory, WhatIsBeforeAContradictionIsWritten) {
  const test::TemporaryFolder folder;
  {
    Toy::Opened directory(folder / "whole");
    Toy::run(directory, 0, 10);
  }
  RunDirectory again({.path = folder / "again", .state_digest_every = 2, .replay = folder / "whole"}, {});
  again.facts().begin({}, {}, 10);
  std::vector<StepFacts> steps;
  for (int64_t step = 0; step < 4; ++step) steps.push_back(Toy::told(step));
  steps[2].update->loss = 7.0;
  EXPECT_THROW(again.facts().record(steps), Failure);
  EXPECT_EQ(ledger_steps(folder / "again" / "ledger.jsonl").size(), 2u);
}

// After a power cut the file may lack lines of steps that the ledger has; workers report them again.
TEST(RunDirectory, DigestsThatWereLostComeAgain) {
  const test::TemporaryFolder folder;
  for (const char* name : {"whole", "cut"}) {
    Toy::Opened directory(folder / name);
    Toy::run(directory, 0, 9);
  }
  const fs::path digests = folder / "cut" / "digests.jsonl";
  std::string text = read_file(digests);
  text.resize(text.rfind('\n', text.size() - 2) + 1);
  replace_file(digests, text);
  for (const char* name : {"whole", "cut"}) {
    Toy::Opened directory(folder / name, true);
    EXPECT_EQ(directory.start().step, 6);
    Toy::run(directory, 6, 10);
  }
  EXPECT_EQ(read_file(digests), read_file(folder / "whole" / "digests.jsonl"));
}

TEST(RunDirectory, FactsMayComeTwiceAndOutOfOrderButNotContradict) {
  const test::TemporaryFolder folder;
  Toy::Opened directory(folder / "run");
  EXPECT_EQ(directory.facts().record({Toy::told(1)}), -1);  // step 0 is missing
  EXPECT_EQ(directory.facts().record({Toy::told(0)}), 0);   // line 2 waits for the digest of its state
  EXPECT_EQ(directory.facts().record({Toy::told(0)}), 0);
  EXPECT_EQ(directory.facts().record({Toy::told(2)}), 1);
  StepFacts other = Toy::told(0);
  other.update->loss = 3.0;
  EXPECT_THROW(directory.facts().record({other}), Failure);
  StepFacts state = Toy::told(2);
  state.state = Digest{7, 7};
  EXPECT_THROW(directory.facts().record({state}), Failure);
}

using Settled = std::vector<CheckpointCommitter::Settled>;

TEST(RunDirectory, ACheckpointWaitsForAllPartsAndUntilTheMembersAgree) {
  const test::TemporaryFolder folder;
  Toy::Opened directory(folder / "run");
  const CheckpointStore store(folder / "run" / "checkpoints");
  for (int64_t step = 0; step < 3; ++step) directory.facts().record({Toy::told(step)});
  EXPECT_EQ(Toy::save(directory, 3), Settled());
  EXPECT_EQ(directory.facts().recorded(), 2);
  EXPECT_TRUE(store.steps().empty());
  directory.facts().record({Toy::told(3)});
  EXPECT_EQ(directory.checkpoints().commit(), (Settled{{3, ""}}));
  EXPECT_EQ(store.read(3).digest, digest(Toy::state(3)));
  EXPECT_EQ(directory.checkpoints().saved(6, {.part = 0, .parts = 2, .error = "the disk is full"}),
            (Settled{{6, "the disk is full"}}));
  // No step follows where the run stops, so none can confirm the state.
  for (int64_t step = 4; step < 6; ++step) directory.facts().record({Toy::told(step)});
  EXPECT_EQ(directory.facts().recorded(), 5);
  EXPECT_EQ(Toy::save(directory, 6, /*stops=*/true), (Settled{{6, ""}}));
  EXPECT_EQ(directory.facts().recorded(), 6);
  EXPECT_EQ(directory.checkpoints().newest(10), 6);
  EXPECT_EQ(directory.checkpoints().newest(5), 3);
  flip_byte(folder / "run" / "checkpoints" / "step-6" / "manifest.json", 0);
  EXPECT_EQ(directory.checkpoints().newest(10), 3);
}

// A worker with damaged memory saves a state that the members do not agree on.
TEST(RunDirectory, AStateThatIsDamagedIsNeverCommitted) {
  const test::TemporaryFolder folder;
  Toy::Opened directory(folder / "run");
  const CheckpointStore store(folder / "run" / "checkpoints");
  for (int64_t step = 0; step < 3; ++step) directory.facts().record({Toy::told(step)});
  EXPECT_EQ(Toy::save(directory, 3, /*stops=*/false, /*other=*/4), Settled());
  directory.facts().record({Toy::told(3)});
  EXPECT_EQ(directory.checkpoints().commit(),
            (Settled{{3, "what was saved is not the state that the workers agree on"}}));
  EXPECT_TRUE(store.steps().empty());
  for (int64_t step = 4; step < 6; ++step) directory.facts().record({Toy::told(step)});
  const Settled differ = Toy::save(directory, 6, /*stops=*/true, /*other=*/7);
  ASSERT_EQ(differ.size(), 1u);
  EXPECT_NE(differ[0].failure.find("have different states"), std::string::npos) << differ[0].failure;
  EXPECT_EQ(directory.checkpoints().newest(10), 0);
  EXPECT_EQ(directory.facts().recorded(), 5);
  EXPECT_EQ(Toy::save(directory, 6, /*stops=*/true), (Settled{{6, ""}}));
  EXPECT_EQ(store.read(6).digest, digest(Toy::state(6)));
}

TEST(RunDirectory, RefusesWhatItShould) {
  const test::TemporaryFolder folder;
  {
    Toy::Opened directory(folder / "run");
    EXPECT_THROW(Toy::Opened(folder / "run", true), UsageError);  // in use
    Toy::run(directory, 0, 8);
  }
  EXPECT_THROW(Toy::Opened(folder / "run"), UsageError);  // holds a run

  // A checkpoint that the ledger contradicts, or does not reach, is passed over.
  const fs::path ledger = folder / "run" / "ledger.jsonl";
  const std::string text = read_file(ledger);
  size_t end = 0;
  for (int line = 0; line < 6; ++line) end = text.find('\n', end) + 1;
  replace_file(ledger, text.substr(0, end));
  {
    const Toy::Opened directory(folder / "run", true);
    EXPECT_EQ(directory.start().step, 3);
    EXPECT_EQ(directory.start().notices.size(), 2u);
  }
  flip_byte(folder / "run" / "checkpoints" / "step-3" / "manifest.json", 10);
  try {
    Toy::Opened(folder / "run", true);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("no checkpoint is good"), std::string::npos) << failure.what();
  }
}

// A process that looks only at the count would take over from a coordinator that lives but does not count.
TEST(Term, CountsOnWhereItsCountWasRemoved) {
  const test::TemporaryFolder folder;
  const fs::path run = folder.path();
  HeldTerm held(run, {.number = 1, .run = 1, .endpoint = "e"});
  EXPECT_EQ(beats_of(run, 1), 0);
  held.beat();
  EXPECT_EQ(beats_of(run, 1), 1);
  fs::remove(run / "coordinators" / "1.beat");
  held.beat();
  held.beat();
  EXPECT_EQ(beats_of(run, 1), 3);
}

}  // namespace
}  // namespace elinvar
