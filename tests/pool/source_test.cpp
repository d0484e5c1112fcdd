// The sources of a pool's machines, and how programs are started there.
#include "tools/pool/hosts/source.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/support/temporary_folder.h"
#include "tools/pool/hosts/process.h"
#include "tools/pool/hosts/slurm.h"

namespace elinvar::pool {
namespace {

using elinvar::test::message_of;
using elinvar::test::TemporaryFolder;

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += word + " ";
  return line;
}

TEST(PoolProcess, IsFoundByItsWordsAndToldHowItEnded) {
  const TemporaryFolder folder;
  const std::string mark = folder.path();  // no other process has such an argument
  const std::string handle = start_process({"sh", "-c", "echo said; sleep 100; true", mark, "x y"}, folder / "log");
  EXPECT_TRUE(process_state(handle).running);
  for (int i = 0; i < 5000 && end_of_file(folder / "log", 100).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // and has its arguments
  EXPECT_EQ(find_process({mark, "x y"}), handle);
  EXPECT_EQ(find_process({mark, "x"}), "");
  kill_process(handle);
  ProcessState state = process_state(handle);
  for (int i = 0; i < 5000 && state.running; ++i, state = process_state(handle))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(state.code, 128 + SIGKILL);
  EXPECT_EQ(end_of_file(folder / "log", 100), "said\n");
  EXPECT_EQ(process_state(handle).code, -1) << "whoever asks later cannot know";
}

TEST(PoolProcess, AnotherProcessWithItsNumberIsNotIt) {
  const std::string other = std::to_string(::getppid()) + ":1";
  EXPECT_FALSE(process_state(other).running);
  kill_process(std::to_string(::getpid()) + ":1");  // would otherwise end the test
}

TEST(PoolProcess, WordsAreNotForAShell) {
  const TemporaryFolder folder;
  const ProgramOutput told = run_program({"printf", "%s", "$(touch " + folder.path() + "/x); `true` '"}, 10);
  EXPECT_EQ(told.code, 0);
  EXPECT_EQ(told.out, "$(touch " + folder.path() + "/x); `true` '");
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

TEST(PoolProcess, AProgramThatHangsIsNotWaitedFor) {
  EXPECT_EQ(run_program({"sleep", "100"}, 0.05).code, -1);
  EXPECT_EQ(run_program({"no-such-program-anywhere"}, 1).code, -1);
  EXPECT_EQ(run_program({"sh", "-c", "echo no >&2; exit 3"}, 10).err, "no\n");
}

TEST(PoolSource, ThisHostHasItsSlots) {
  const auto source = make_source({.name = "here", .slots = 3, .threads = 2}, "/bin/train");
  const std::vector<Machine> machines = source->machines(0, 0);
  ASSERT_EQ(machines.size(), 1u);
  EXPECT_EQ(machines[0].slots, 3);
  EXPECT_EQ(machines[0].kind, "cpu-2");
  EXPECT_EQ(joined(source->command(machines[0], {"train", "join"})), "/bin/train join ");
}

// Returns a program that lists these GPUs.
std::string train_with(const TemporaryFolder& folder, const std::string& devices) {
  const std::filesystem::path program =
      folder.write("train", "#!/bin/sh\n[ \"$1\" = devices ] && printf '" + devices + "'\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return program;
}

TEST(PoolSource, ThisHostHasAsManySlotsAsGpus) {
  const TemporaryFolder folder;
  const std::string train = train_with(folder, "cpu      x\\ncuda:0   A100; x\\ncuda:1   A100\\ncuda:2   A100\\n");
  const auto machine = [&](int slots) {
    return make_source({.name = "gpus", .slots = slots, .device = "cuda"}, train)->machines(0, 0).at(0);
  };
  EXPECT_EQ(machine(0).slots, 3);
  EXPECT_EQ(machine(0).kind, "cuda");
  EXPECT_EQ(devices_of(machine(0)), (std::vector<std::string>{"cuda:0", "cuda:1", "cuda:2"}));
  EXPECT_EQ(devices_of(machine(2)), (std::vector<std::string>{"cuda:0", "cuda:1"}));
  EXPECT_EQ(message_of<UsageError>([&] { machine(4); }),
            "[gpus] slots = 4, but this host has 3 GPUs, one for each slot");
  train_with(folder, "cpu  x\\ncuda     none: no driver\\n");
  EXPECT_NE(message_of<UsageError>([&] { machine(0); }).find("this host has no GPU"), std::string::npos);
  const auto cpus = make_source({.name = "here", .slots = 2}, "no-such-program")->machines(0, 0).at(0);
  EXPECT_EQ(devices_of(cpus), (std::vector<std::string>{"cpu", "cpu"}));
}

TEST(PoolSource, SshGetsOneQuotedLineOfHarmlessWords) {
  const auto source = make_source({.name = "lab", .source = "ssh", .hosts = {"u@a"}, .program = "/opt/train"}, "train");
  const Machine machine = source->machines(0, 0).at(0);
  const std::vector<std::string> words =
      source->command(machine, {"train", "join", "tcp://h:1", "--listen", "tcp://*:0"});
  EXPECT_EQ(words.front(), "ssh");
  EXPECT_EQ(words.back(), "exec '/opt/train' 'join' 'tcp://h:1' '--listen' 'tcp://*:0'");
  for (const char* evil : {"a b", "$x", "`x`", "a'b", "a;b", "a\nb", "", "\\", "\"", "a&b", "~", "!"})
    EXPECT_THROW(source->command(machine, {"train", evil}), UsageError) << evil;
  EXPECT_THROW(make_source({.name = "lab", .source = "ssh", .hosts = {"-oProxyCommand=x"}}, "train"), UsageError);
}

TEST(PoolSource, OptionsMustMakeSense) {
  EXPECT_NE(message_of<UsageError>([] { make_source({.name = "c", .source = "slurm"}, "train"); }).find("partition"),
            std::string::npos);
  EXPECT_THROW(make_source({.name = "c", .source = "slurm", .partition = "-x"}, "train"), UsageError);
  EXPECT_THROW(make_source({.name = "c", .device = "tpu"}, "train"), UsageError);
  EXPECT_NE(message_of<UsageError>([] {
              make_source({.name = "lab", .source = "ssh", .hosts = {"a", "b", "a"}}, "train");
            }).find("a twice"),
            std::string::npos);
}

// Commands that print the contents of files, and record their arguments.
class FakeSlurm : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"sinfo", "squeue"})
      command(name, "cat \"$(dirname \"$0\")/" + std::string(name) + ".says\"");
    command("sbatch", "echo \"$@\" >> \"$(dirname \"$0\")/told\"; echo 41");
    command("scancel", "echo scancel \"$@\" >> \"$(dirname \"$0\")/told\"");
    folder_.write("told", "");
    says("squeue", "");
  }
  void command(const std::string& name, const std::string& text) {
    std::filesystem::permissions(folder_.write(name, "#!/bin/sh\n" + text + "\n"), std::filesystem::perms::owner_all);
  }
  void says(const std::string& name, const std::string& text) { folder_.write(name + ".says", text); }
  std::string told() {
    const std::string text = read_file(folder_ / "told");
    folder_.write("told", "");
    return text;
  }
  SlurmSource source(const std::string& device = "cpu", int slots = 0) {
    return SlurmSource({.name = "c",
                        .source = "slurm",
                        .slots = slots,
                        .device = device,
                        .partition = "spare",
                        .minutes = 30,
                        .commands = folder_.path()},
                       "/bin/train");
  }
  TemporaryFolder folder_;
};

TEST_F(FakeSlurm, IdleNodesAreHarvestedAsFarAsTheyAreWanted) {
  says("sinfo", "n1|idle|4|(null)\nn2|alloc|4|(null)\nn3|idle|4|(null)\nn4|down*|4|(null)\nn5|idle|4|(null)\n");
  SlurmSource slurm = source();
  EXPECT_TRUE(slurm.machines(100, 0).empty());
  EXPECT_EQ(told(), "");
  EXPECT_TRUE(slurm.machines(102, 2).empty());
  const std::string lines = told();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_NE(lines.find("--partition spare"), std::string::npos);
  EXPECT_NE(lines.find("--nodelist n1"), std::string::npos);
  EXPECT_NE(lines.find("--nodelist n3"), std::string::npos);
}

TEST_F(FakeSlurm, AnAllocationIsAMachineUntilItsEnd) {
  says("sinfo", "n1|alloc|4|(null)\n");
  says("squeue", "41|RUNNING|n1|2026-05-04T10:11:12\n42|COMPLETING|n2|2026-05-04T10:11:12\n");
  SlurmSource slurm = source();
  const std::vector<Machine> machines = slurm.machines(100, 5);
  ASSERT_EQ(machines.size(), 1u);
  EXPECT_EQ(machines[0].host, "n1");
  EXPECT_EQ(machines[0].lease, "41");
  EXPECT_EQ(machines[0].threads, 4);
  const time_t until = static_cast<time_t>(machines[0].until);
  std::tm local{};
  localtime_r(&until, &local);
  EXPECT_EQ(local.tm_hour, 10);
  EXPECT_EQ(local.tm_sec, 12);
  const std::string line = joined(slurm.command(machines[0], {"train", "join", "x"}));
  EXPECT_NE(line.find("--jobid 41"), std::string::npos);
  EXPECT_TRUE(line.ends_with("/bin/train join x ")) << line;
  slurm.release(machines[0]);
  EXPECT_EQ(told(), "scancel 41\n");
}

// All GPUs of a node are requested, and each worker is told its own.
TEST_F(FakeSlurm, GpusAreAskedFor) {
  says("sinfo", "n1|idle|8|gpu:a100:4(S:0-1),shard:8\nn2|idle|8|(null)\nn3|idle|8|gpu:2,gpu:v100:1(S:0)\n");
  SlurmSource slurm = source("cuda");
  slurm.machines(100, 6);
  std::string lines = told();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << "n2 has none\n" << lines;
  EXPECT_NE(lines.find("--nodelist n1"), std::string::npos) << lines;
  EXPECT_NE(lines.find("--gres=gpu:4"), std::string::npos) << lines;
  EXPECT_NE(lines.find("--gres=gpu:3"), std::string::npos) << lines;
  says("squeue", "41|RUNNING|n1|2026-05-04T10:11:12\n");
  const Machine machine = slurm.machines(102, 0).at(0);
  EXPECT_EQ(devices_of(machine), (std::vector<std::string>{"cuda:0", "cuda:1", "cuda:2", "cuda:3"}));
  EXPECT_EQ(machine.threads, 2);
  EXPECT_NE(joined(slurm.command(machine, {"train", "join"})).find("--gres=gpu:4 /bin/train join"), std::string::npos);

  SlurmSource two = source("cuda", 2), cpus = source();
  says("squeue", "");
  two.machines(100, 1);
  EXPECT_NE(told().find("--gres=gpu:2"), std::string::npos);
  cpus.machines(100, 1);
  EXPECT_EQ(told().find("gres"), std::string::npos);
}

TEST_F(FakeSlurm, AClockThatIsSetBackIsNoReasonNotToAsk) {
  says("sinfo", "n1|alloc|4|(null)\n");
  SlurmSource slurm = source();
  EXPECT_TRUE(slurm.machines(1000, 0).empty());
  says("squeue", "41|RUNNING|n1|2026-05-04T10:11:12\n");
  EXPECT_EQ(slurm.machines(100, 0).size(), 1u);
}

TEST_F(FakeSlurm, WhoWaitsForANodeThatSomebodyElseGotIsTakenBack) {
  says("sinfo", "n1|alloc|4|(null)\n");
  says("squeue", "41|PENDING||N/A\n");
  SlurmSource slurm = source();
  slurm.machines(100, 1);
  slurm.machines(105, 1);
  EXPECT_EQ(told(), "") << "it may still come";
  slurm.machines(111, 1);
  EXPECT_EQ(told(), "scancel 41\n");
}

TEST_F(FakeSlurm, ASlurmThatDoesNotAnswerIsNoNews) {
  says("sinfo", "n1|alloc|4|(null)\n");
  says("squeue", "41|RUNNING|n1|2026-05-04T10:11:12\n");
  SlurmSource slurm = source();
  EXPECT_EQ(slurm.machines(100, 0).size(), 1u);
  command("squeue", "echo slurm_load_jobs error: Unable to contact slurm controller >&2; exit 1");
  EXPECT_THROW(slurm.machines(102, 0), Failure);
  command("squeue", "cat \"$(dirname \"$0\")/squeue.says\"");
  EXPECT_THROW(slurm.machines(104, 0), Failure) << "it is left alone for a while";
  EXPECT_EQ(slurm.machines(120, 0).size(), 1u);
}

}  // namespace
}  // namespace elinvar::pool
