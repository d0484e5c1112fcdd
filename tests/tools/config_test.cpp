#include "tools/config/config.h"

#include <gtest/gtest.h>

#include <set>

#include "nn/task.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

const std::string kSmall = R"([run]
steps = 10
batch_size = 4

[model]
kind = "mlp"
hidden = [32, 16]

[data]
kind = "synthetic"
)";

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(text, "folder/small.toml", overrides);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, DefaultsAndValues) {
  const Config c = parse_config(kSmall, "folder/small.toml");
  EXPECT_EQ(c.run.name, "small");
  EXPECT_EQ(c.run.steps, 10);
  EXPECT_EQ(c.run.virtual_ranks, 1);
  EXPECT_EQ(c.model.kind, "mlp");
  EXPECT_EQ(std::get<std::vector<int64_t>>(c.model.settings.at("hidden").value), (std::vector<int64_t>{32, 16}));
  EXPECT_EQ(c.model.settings.at("hidden").place, "folder/small.toml:7");
  EXPECT_EQ(c.model.place, "folder/small.toml:6");
  EXPECT_EQ(c.schedule.kind, "constant");
}

TEST(Config, VirtualRanksByDefaultHaveEightSamplesOrMore) {
  const auto ranks = [](const char* batch) {
    return parse_config(kSmall, "small.toml", {std::string("run.batch_size=") + batch}).run.virtual_ranks;
  };
  EXPECT_EQ(ranks("1"), 1);
  EXPECT_EQ(ranks("15"), 1);
  EXPECT_EQ(ranks("16"), 2);
  EXPECT_EQ(ranks("32"), 4);
  EXPECT_EQ(ranks("4096"), 4);
}

TEST(Config, Overrides) {
  const Config c = parse_config(kSmall, "small.toml",
                                {"run.seed=7", "optimizer.kind=adamw", "optimizer.lr=1e-3", "data.mean=[0.5, 0.25]",
                                 "model.hidden=[8]", "run.name=\"a b\"", "run.steps=3", "run.steps=4"});
  EXPECT_EQ(c.run.seed, 7u);
  EXPECT_EQ(c.run.name, "a b");
  EXPECT_EQ(c.run.steps, 4);
  EXPECT_EQ(c.optimizer.kind, "adamw");
  EXPECT_EQ(c.optimizer.lr, 1e-3);
  EXPECT_EQ(c.data.mean, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(c.model.settings.at("hidden").value), std::vector<int64_t>{8});
}

TEST(Config, WrittenOutItReadsBackTheSame) {
  Config c = parse_config(kSmall, "small.toml",
                          {"tensorboard.prompt=\"quote \\\" \\\\ tab \\t\"", "optimizer.lr=0.1", "optimizer.eps=1e-8"});
  c.optimizer.weight_decay = 0.1 + 0.2;
  const std::string text = to_toml(c);
  const Config again = parse_config(text, "other.toml");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.optimizer.weight_decay, 0.1 + 0.2);
  EXPECT_TRUE(differences(c, again).empty());
}

TEST(Config, EveryModelConfigurationReads) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ELINVAR_SOURCE_DIR) + "/models/configs")) {
    if (entry.path().extension() != ".toml") continue;
    const Config c = read_config(entry.path());
    EXPECT_EQ(to_toml(parse_config(to_toml(c), "again.toml")), to_toml(c)) << entry.path();
    ++found;
  }
  EXPECT_GT(found, 10);
}

TEST(Config, Differences) {
  const Config c = parse_config(kSmall, "small.toml");
  EXPECT_TRUE(differences(c, parse_config(kSmall, "small.toml",
                                          {"run.keep=9", "data.threads=3", "data.prefetch=0", "run.name=x"}))
                  .empty());
  EXPECT_EQ(differences(c, parse_config(kSmall, "small.toml", {"run.seed=1"})),
            std::vector<std::string>{"run.seed changed from 0 to 1"});
  EXPECT_EQ(differences(c, parse_config(kSmall, "small.toml", {"model.hidden=[1]"})),
            std::vector<std::string>{"model.hidden changed from [32, 16] to [1]"});
  EXPECT_EQ(differences(parse_config(kSmall, "a.toml", {"model.kind=vgg16"}),
                        parse_config(kSmall, "a.toml", {"model.kind=resnet50"})),
            std::vector<std::string>{"model.kind changed from \"vgg16\" to \"resnet50\""});
  EXPECT_EQ(differences(c, parse_config(kSmall, "small.toml", {"run.steps=0", "run.epochs=2"})).size(), 2u);
}

TEST(Config, ErrorsNameTheLineTheKeyAndTheNearestSpelling) {
  const auto with = [](const std::string& line, const std::string& table = "run") {
    std::string text = kSmall;
    return text.insert(text.find("[" + table + "]") + table.size() + 3, line + "\n");
  };
  EXPECT_EQ(error_of(with("batchsize = 3")),
            "folder/small.toml:2: unknown key 'batchsize' in [run]; did you mean 'batch_size'?");
  EXPECT_EQ(error_of(kSmall, {"run.lr=1"}), "--set run.lr: unknown key 'lr' in [run]; 'lr' belongs in [optimizer]");
  EXPECT_EQ(error_of(kSmall, {"run.path=1"}), "--set run.path: unknown key 'path' in [run]; 'path' belongs in [data]");
  EXPECT_EQ(error_of(kSmall, {"data.categories=[]"}),
            "--set data.categories: unknown key 'categories' in [data]; 'categories' is for another data.kind");
  EXPECT_EQ(error_of(with("seed = \"3\"")), "folder/small.toml:2: run.seed must be an integer, got text");
  EXPECT_EQ(error_of(with("seed = -3")), "folder/small.toml:2: run.seed must not be negative, got -3");
  EXPECT_EQ(error_of(with("keep = 0")), "folder/small.toml:2: run.keep must lie between 1 and 1000000, got 0");
  EXPECT_EQ(error_of(with("virtual_ranks = 70000")),
            "folder/small.toml:2: run.virtual_ranks must lie between 1 and 65536, got 70000");
  EXPECT_EQ(error_of(with("virtual_ranks = 1.5")),
            "folder/small.toml:2: run.virtual_ranks must be an integer, got a number");
  EXPECT_EQ(error_of(with("epochs = 3")), "folder/small.toml:2: run.epochs and run.steps exclude each other");
  EXPECT_EQ(error_of(with("flip = 1", "data")),
            "folder/small.toml:10: data.flip must be true or false, got an integer");
  EXPECT_EQ(error_of(with("mean = 0.5", "data")), "folder/small.toml:10: data.mean must be an array, got a number");
  EXPECT_EQ(error_of(with("mean = [\"x\"]", "data")), "folder/small.toml:10: data.mean must be a number, got text");
  EXPECT_EQ(error_of(with("size = {a = 1}", "model")),
            "folder/small.toml:6: model.size must be a number, text, true or false, an array of numbers or of texts, "
            "or an array of tables");
  EXPECT_EQ(error_of(kSmall + "[optimiser]\nlr = 1\n"),
            "folder/small.toml:11: unknown table 'optimiser'; did you mean 'optimizer'?");
  EXPECT_EQ(error_of(kSmall + "[optimizer]\nlr = nan\n"), "folder/small.toml:12: optimizer.lr must be finite");
  EXPECT_EQ(error_of(kSmall + "[optimizer]\nkind = \"adamv\"\n")
                .find("folder/small.toml:12: optimizer.kind does not know 'adamv'; did you mean 'adam"),
            0u);
  EXPECT_EQ(error_of("run = 3\n"), "folder/small.toml:1: [run] must be a table, got an integer");
  EXPECT_EQ(error_of("steps = 3\n").find("folder/small.toml:1: unknown key 'steps'; 'steps' belongs in [run]"), 0u);
  EXPECT_EQ(error_of("[run\n").find("folder/small.toml:1: not valid TOML"), 0u) << error_of("[run\n");
  EXPECT_NE(error_of("[run]\nsteps = 3\n").find("run.batch_size is missing"), std::string::npos);
  EXPECT_NE(error_of("[run]\nbatch_size = 3\n").find("run.steps or run.epochs is missing"), std::string::npos);
  EXPECT_EQ(error_of(kSmall, {"run.seed=x"}), "--set run.seed: run.seed must be an integer, got text");
  EXPECT_EQ(error_of(kSmall, {"seed=1"}), "--set seed=1: expected table.key=value");
  EXPECT_EQ(error_of(kSmall, {"run.seeds=1"}), "--set run.seeds: unknown key 'seeds' in [run]; did you mean 'seed'?");
  EXPECT_EQ(error_of("[run]\nsteps = 3\nbatch_size = 4\n[data]\nkind = \"synthetic\"\n"),
            "folder/small.toml: a [model] table is missing: which network is to be trained?");
}

TEST(Config, DepthIsBounded) {
  const auto repeated = [](int times, const std::string& part) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  const std::string dots = repeated(50000, "a.") + "a";
  for (const std::string& text :
       {"[" + dots + "]\n", "[[" + dots + "]]\n", dots + " = 1\n", "a = {" + dots + " = 1}\n"})
    EXPECT_EQ(error_of(text), "folder/small.toml:1: a name has more than 32 dots") << text.substr(0, 8);
  EXPECT_EQ(error_of("#.[\n[run]\nb = \"\"\"\\\"\"\"\n.\"\"\"\n" + repeated(40, "\"a.b\" . ") + "a = 1\n"),
            "folder/small.toml:5: a name has more than 32 dots");
  for (const std::string& open : {std::string("["), std::string("{a = ")})
    EXPECT_EQ(error_of("\na = " + repeated(50000, open)),
              "folder/small.toml:2: arrays and tables are nested deeper than 64 levels");
  EXPECT_EQ(error_of(kSmall, {"model.hidden=" + repeated(50000, "[")}),
            "--set model.hidden:1: arrays and tables are nested deeper than 64 levels");
  EXPECT_EQ(error_of(kSmall, {"run." + dots + "=1"}), "--set run." + dots + "=1: expected table.key=value");
  // Strings, comments and intended nesting do not count.
  const std::string prompt = kSmall + "[tensorboard]\nprompt = ";
  EXPECT_EQ(error_of(prompt + "'''" + repeated(500, ".[\"\n") + "''' # " + repeated(500, ".{") + "\n"), "no error");
  EXPECT_EQ(error_of(prompt + "\"\"\"" + repeated(500, ".[\\\"") + "\"\"\"\"\"\n"), "no error");
  EXPECT_EQ(error_of("[run]\nsteps = 1\nbatch_size = 1\n[data]\nkind = 'text'\n[model]\nkind = 'layers'\nlayer = " +
                     repeated(30, "[{layer = ") + "3" + repeated(30, "}]")),
            "no error");
  EXPECT_EQ(error_of(std::string((size_t{4} << 20) + 1, ' ')),
            "folder/small.toml: a configuration of 4194305 bytes; the most is 4194304");
}

TEST(Config, OverridesAreOneValueInUtf8) {
  EXPECT_EQ(error_of(kSmall, {"run.seed=2\nmore = 3"}), "--set run.seed: expected one value");
  EXPECT_EQ(error_of(kSmall, {"data.path=\xFF"}), "--set data.path: expected UTF-8");
  EXPECT_EQ(error_of(kSmall, {"data.path=\"a\\u0000b\""}),
            "--set data.path: data.path must not have a character of the code 0");
}

TEST(Config, TheNameOfARunIsThatOfAFolder) {
  for (const std::string& name : {std::string(""), std::string("."), std::string(".."), std::string("../x"),
                                  std::string("a/b"), std::string("/tmp/x"), std::string("a\\u001bb"),
                                  std::string("a\\nb"), std::string(201, 'x'), std::string(5000, 'x')})
    EXPECT_EQ(
        error_of(kSmall, {"run.name=\"" + name + "\""}),
        "--set run.name: run.name must be the name of a folder: UTF-8 of at most 200 bytes, without '/', a leading "
        "'.' and control characters")
        << name;
  const std::string said = test::message_of<UsageError>([] { parse_config(kSmall, "a/b\xFF.toml"); });
  EXPECT_EQ(said.find("a/b\xFF.toml:1: run.name must be"), 0u) << said;
  EXPECT_EQ(parse_config(kSmall, "a.toml", {"run.name=\"" + std::string(200, 'x') + "\""}).run.name.size(), 200u);
}

TEST(Config, CountsHaveBounds) {
  for (const std::string setting : {"batch_size = 9223372036854775807", "epochs = 1e300", "keep = 2147483647"}) {
    const std::string said = error_of("[run]\n" + setting + "\n"), key = setting.substr(0, setting.find(' '));
    EXPECT_EQ(said.find("folder/small.toml:2: run." + key + " must lie between "), 0u) << said;
  }
  EXPECT_EQ(error_of(kSmall + "[schedule]\nmilestones = [5, 3]\n"),
            "folder/small.toml:12: schedule.milestones must be in ascending order, got 3 after 5");
  EXPECT_EQ(error_of(kSmall + "[schedule]\nmilestones = [-1]\n"),
            "folder/small.toml:12: schedule.milestones must be steps, which count from 0, got -1");
  EXPECT_EQ(error_of(kSmall + "[optimizer]\nlr = 1e39\n"),
            "folder/small.toml:12: optimizer.lr must be at most 3.40282e+38, the largest float32, got 1e+39");
}

TEST(Config, ValuesOfTheOptimizerAndTheScheduleAreCheckedInPlace) {
  const auto with = [](const std::string& lines) { return error_of(kSmall + lines); };
  const auto expect_refused = [&](const std::string& table, const std::string& line, const std::string& complaint) {
    const std::string key = table + "." + line.substr(0, line.find(' '));
    EXPECT_EQ(with("[" + table + "]\n" + line + "\n"), "folder/small.toml:12: " + key + " " + complaint);
  };
  expect_refused("optimizer", "lr = -1", "must be at least 0, got -1");
  expect_refused("optimizer", "momentum = 1", "must be in [0, 1), got 1");
  expect_refused("optimizer", "beta1 = 1.5", "must be in [0, 1), got 1.5");
  expect_refused("optimizer", "beta2 = -0.5", "must be in [0, 1), got -0.5");
  expect_refused("optimizer", "eps = -1e-8", "must be at least 0, got -1e-08");
  expect_refused("optimizer", "weight_decay = -1", "must be at least 0, got -1");
  expect_refused("optimizer", "trust = 0", "must be positive, got 0");
  expect_refused("optimizer", "clip_norm = -2", "must be at least 0, got -2");
  expect_refused("optimizer", "lr = 1e39", "must be at most 3.40282e+38, the largest float32, got 1e+39");
  expect_refused("optimizer", "weight_decay = 1e300", "must be at most 3.40282e+38, the largest float32, got 1e+300");
  for (const char* kind : {"adam", "adamw", "lamb"})
    for (const char* eps : {"0", "1e-50"})
      EXPECT_NE(with(fmt::format("[optimizer]\nkind = \"{}\"\neps = {}\n", kind, eps))
                    .find("folder/small.toml:13: optimizer.eps must be above 0 in float32"),
                std::string::npos)
          << kind << eps;
  EXPECT_EQ(with("[optimizer]\nkind = \"lars\"\neps = 0\n"), "no error");
  EXPECT_EQ(with("[optimizer]\nmomentum = 0\nnesterov = true\n"),
            "folder/small.toml:13: optimizer.nesterov needs a momentum above 0");
  expect_refused("schedule", "kind = \"cosin\"", "does not know 'cosin'; did you mean 'cosine'?");
  expect_refused("schedule", "warmup_steps = -1", "must be at least 0, got -1");
  expect_refused("schedule", "min_ratio = 2", "must be in [0, 1], got 2");
  expect_refused("schedule", "every = -1", "must be at least 0, got -1");
  expect_refused("schedule", "gamma = 0", "must be in (0, 1], got 0");
  expect_refused("schedule", "rise = 1", "must be in [0, 1), got 1");
  expect_refused("schedule", "initial_ratio = -0.1", "must be in [0, 1], got -0.1");
  // An error of a key that is not set names the line of its table, or the file if there is no such table.
  EXPECT_EQ(with("[schedule]\nkind = \"step\"\n").find("folder/small.toml:11: schedule.milestones or "), 0u);
  EXPECT_EQ(error_of(kSmall, {"optimizer.momentum=2"}),
            "--set optimizer.momentum: optimizer.momentum must be in [0, 1), got 2");
  EXPECT_EQ(error_of(kSmall, {"optimizer.nesterov=true", "optimizer.momentum=0"}),
            "--set optimizer.nesterov: optimizer.nesterov needs a momentum above 0");
  EXPECT_EQ(parse_config(kSmall, "small.toml").places("optimizer.lr"), "small.toml");
  EXPECT_EQ(parse_config(kSmall, "small.toml").places("data.size"), "small.toml:9");
}

TEST(Config, AdaptiveScalingHasItsOwnKeys) {
  const std::string adaptive = "run.scaling=adaptive";
  EXPECT_NE(error_of(kSmall, {adaptive}).find("run.batch_max is missing: the most samples"), std::string::npos)
      << error_of(kSmall, {adaptive});
  EXPECT_NE(error_of(kSmall, {adaptive, "run.batch_max=3"}).find("= 3 are fewer than the 4 samples"),
            std::string::npos);
  EXPECT_NE(error_of(kSmall, {adaptive, "run.batch_max=8", "run.ramp_steps=-1"}).find("run.ramp_steps"),
            std::string::npos);
  EXPECT_NE(error_of(kSmall, {"run.batch_max=8"}).find("has a meaning only with run.scaling"), std::string::npos);
  EXPECT_EQ(to_toml(parse_config(kSmall, "small.toml")).find("batch_max"), std::string::npos);
  const Config c = parse_config(kSmall, "small.toml", {adaptive, "run.batch_max=8"});
  EXPECT_EQ(to_toml(parse_config(to_toml(c), "again.toml")), to_toml(c));
  EXPECT_EQ(c.run.ramp_steps, 100);
}

TEST(Config, FastNumericsHaveAPrecision) {
  EXPECT_EQ(parse_config(kSmall, "small.toml", {"run.numerics=fast"}).run.precision, "bf16");
  const Config c = parse_config(kSmall, "small.toml", {"run.numerics=fast", "run.precision=tf32"});
  EXPECT_EQ(c.run.precision, "tf32");
  EXPECT_EQ(to_toml(parse_config(to_toml(c), "small.toml")), to_toml(c));
  EXPECT_NE(error_of(kSmall, {"run.precision=bf16"}).find("has a meaning only with run.numerics"), std::string::npos);
  EXPECT_NE(error_of(kSmall, {"run.numerics=fast", "run.precision=fp8"}).find("run.precision"), std::string::npos);
  EXPECT_NE(error_of(kSmall, {"run.numerics=fats"}).find("run.numerics"), std::string::npos);
  const Config portable = parse_config(kSmall, "small.toml");
  EXPECT_EQ(to_toml(portable).find("precision"), std::string::npos);
  const auto one = digest(parse_config(kSmall, "small.toml", {"run.numerics=fast"}));
  EXPECT_NE(one.hex(), digest(c).hex());
  EXPECT_NE(one.hex(), digest(portable).hex());
}

TEST(Config, ABatchThatGrowsHasAnEnd) {
  const Config c = parse_config(kSmall, "small.toml", {"run.grow_every=2", "run.batch_max=16"});
  EXPECT_TRUE(c.grows());
  EXPECT_EQ(c.run.grow_factor, 2);
  EXPECT_EQ(to_toml(parse_config(to_toml(c), "small.toml")), to_toml(c));
  EXPECT_NE(digest(c).hex(), digest(parse_config(kSmall, "small.toml")).hex());
  EXPECT_EQ(to_toml(parse_config(kSmall, "small.toml")).find("grow_"), std::string::npos);
  EXPECT_NE(error_of(kSmall, {"run.grow_every=2"}).find("run.batch_max is missing"), std::string::npos);
  EXPECT_NE(error_of(kSmall, {"run.grow_factor=3"}).find("has a meaning only with run.grow_every"), std::string::npos);
  EXPECT_NE(error_of(kSmall, {"run.grow_every=2", "run.batch_max=3"}).find("= 3 are fewer than the 4"),
            std::string::npos);
  EXPECT_NE(error_of(kSmall, {"run.grow_every=2", "run.batch_max=8", "run.scaling=adaptive"})
                .find("excludes run.scaling = \"adaptive\""),
            std::string::npos);
}

// Digests of recorded runs: a new key must not change them, or they could not be resumed.
TEST(Config, DigestsStayWhatTheyWere) {
  EXPECT_EQ(digest(parse_config(kSmall, "small.toml")).hex(), "19345e761ee83713962f4d5ba99dfeb7");
  for (const char* key : {"data.augment_epochs=1", "data.special_tokens=true", "data.masking=0.15",
                          "data.targets_as_input=true", "optimizer.ema_decay=0.5"})
    EXPECT_NE(digest(parse_config(kSmall, "small.toml", {key})).hex(), "19345e761ee83713962f4d5ba99dfeb7") << key;
}

// tools/CONFIG.md has a row for each key of each table, and no others.
TEST(Config, TheDocumentNamesEveryKey) {
  const std::string document = read_file(std::string(ELINVAR_SOURCE_DIR) + "/tools/CONFIG.md");
  std::set<std::string> documented, written;
  std::string table;
  for (size_t begin = 0; begin < document.size();) {
    const size_t end = std::min(document.find('\n', begin), document.size());
    const std::string line = document.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("## `[")) table = line.substr(5, line.find(']') - 5);
    else if (line.starts_with("# ")) table.clear();
    else if (!table.empty() && line.starts_with("| `"))
      documented.insert(table + "." + line.substr(3, line.find('`', 3) - 3));
  }
  Config c = parse_config(kSmall, "small.toml", {"run.scaling=adaptive", "run.batch_max=8", "run.numerics=fast"});
  std::string all = to_toml(c) + "[run]\nepochs = 1\n";
  all += to_toml(parse_config(kSmall, "small.toml", {"run.grow_every=1", "run.batch_max=8"}));
  for (const char* kind : {"data.kind=labelled_text", "data.kind=text_pairs", "data.kind=table", "data.kind=ratings",
                           "data.kind=synthetic_table", "data.kind=coco"})
    all += to_toml(parse_config(kSmall, "small.toml", {kind}));
  const TargetInfo number{.sample = {}, .dtype = DType::f32}, boxes{{4, 5}, DType::f32, 3};
  for (const auto& [task, targets] :
       {std::pair(Spec{.kind = "binary"}, number),
        {Spec{.kind = "regression", .settings = {{"loss", {std::string("huber")}}}}, number},
        {Spec{.kind = "detection"}, boxes}}) {
    c.task = {};
    (void)make_task(task, {}, targets, &c.task);
    all += to_toml(c);
  }
  for (const auto& [task, targets] :
       {std::pair(Spec{.kind = "ranking"}, TargetInfo{.sample = {2}, .dtype = DType::f32}),
        std::pair(Spec{.kind = "heads",
        .lists = {{"head", {{.kind = "binary"}, {.kind = "binary", .settings = {{"name", {std::string("other")}}}}}}}},
                  TargetInfo{.sample = {2}, .dtype = DType::f32}),
        std::pair(Spec{.kind = "replaced_tokens"}, TargetInfo{.sample = {2}, .classes = 2}),
        std::pair(Spec{.kind = "classification", .settings = {{"top_k", {int64_t{1}}}}}, TargetInfo{.classes = 2})}) {
    c.task = {};
    (void)make_task(task, {}, targets, &c.task);
    all += to_toml(c);
  }
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.find('\n', begin);
    const std::string line = all.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("[")) table = line.substr(1, line.find(']') - 1);
    else if (table != "model" && line.find(" = ") != std::string::npos)
      written.insert(table + "." + line.substr(0, line.find(' ')));
  }
  EXPECT_EQ(documented, written);
}

// Any text is either read or refused with a UsageError.
TEST(Config, MangledTextNeverBreaksTheReader) {
  uint32_t random = 1;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = kSmall;
    for (int i = 0; i < 1 + trial % 4; ++i) {
      random = random * 1664525u + 1013904223u;
      const size_t at = (random >> 8) % text.size();
      if (random & 1u) text[at] = static_cast<char>(random >> 24);
      else text.erase(at, (random >> 3) % 7);
    }
    try {
      parse_config(text, "mangled.toml");
    } catch (const UsageError&) {
    }
  }
}

}  // namespace
}  // namespace elinvar
