// train export DIR/: folders that Hugging Face's transformers load, which train import reads as well.
#include <set>

#include "tensor/base/file.h"
#include "tensor/safetensors.h"
#include "tests/jobs/train_command.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::TrainCommand;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::path& path : paths_in(folder)) names.insert(path.filename().string());
  return names;
}

TEST_F(TrainCommand, ExportsFolders) {
  ASSERT_EQ(run("text.toml", "first").code, 0);
  const std::string out = folder_ / "made/gpt/", config = out + "config.json";
  ASSERT_EQ(train({"export", folder_ / "first", out}).code, 0);
  EXPECT_EQ(names_in(out),
            (std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  const auto json = nlohmann::json::parse(read_file(config));
  EXPECT_EQ(json["architectures"][0], "GPT2LMHeadModel");
  EXPECT_EQ(json["n_positions"], 32);
  EXPECT_EQ(json["vocab_size"], 256);
  EXPECT_EQ(nlohmann::json::parse(read_file(out + "tokenizer_config.json"))["model_max_length"], 32);
  EXPECT_TRUE(read_safetensors(out + "model.safetensors").tensors.contains("transformer.h.0.attn.c_attn.weight"));

  // A folder that holds something is left alone, with or without '/' at its end.
  replace_file(config, "mine");
  for (const std::string& name : {out, out.substr(0, out.size() - 1)}) {
    const Ended taken = train({"export", folder_ / "first", name});
    EXPECT_EQ(taken.code, 2);
    EXPECT_NE(taken.err.find(name + " exists; choose another name, or --force"), std::string::npos) << taken.err;
    EXPECT_EQ(read_file(config), "mine");
  }
  // --force replaces the files of an export, and no others.
  replace_file(out + "README.md", "mine");
  ASSERT_EQ(train({"export", folder_ / "first", out, "--force"}).code, 0);
  EXPECT_EQ(nlohmann::json::parse(read_file(config)), json);
  EXPECT_EQ(read_file(out + "README.md"), "mine");
  EXPECT_EQ(names_in(out).size(), 5u);
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(train({"export", folder_ / "first", folder_ / "empty"}).code, 0);

  // The weights are those of the run.
  ASSERT_EQ(train({"import", out, folder_ / "text.toml", folder_ / "again"}).code, 0);
  const auto loss_of = [&](const char* name) {
    return nlohmann::json::parse(train({"eval", folder_ / name, "--json"}).out).at("loss").get<double>();
  };
  EXPECT_EQ(loss_of("again"), loss_of("first"));
  const Ended other = train({"import", out, folder_ / "text.toml", folder_ / "other", "--set", "model.layers=2"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("model.layers = 1 instead of 2"), std::string::npos) << other.err;
}

TEST_F(TrainCommand, ExportsBothNetworksOfAnElectra) {
  folder_.write("electra.toml", R"([run]
steps = 1
batch_size = 2
[model]
kind = "electra"
layers = 1
heads = 2
channels = 16
[task]
kind = "replaced_tokens"
[data]
kind = "synthetic_text"
size = 40
tokens = "byte"
context = 8
masking = 0.25
targets_as_input = true
)");
  ASSERT_EQ(run("electra.toml", "first").code, 0);
  const std::string out = folder_ / "out/";
  ASSERT_EQ(train({"export", folder_ / "first", out}).code, 0);
  EXPECT_EQ(names_in(out), (std::set<std::string>{"config.json", "generator", "model.safetensors", "tokenizer.json",
                                                  "tokenizer_config.json"}));
  EXPECT_EQ(names_in(out + "generator"),
            (std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(nlohmann::json::parse(read_file(out + "generator/config.json"))["architectures"][0], "ElectraForMaskedLM");
  ASSERT_EQ(train({"import", out, folder_ / "electra.toml", folder_ / "again"}).code, 0);
  for (const char* name : {"first", "again"})
    ASSERT_EQ(train({"export", folder_ / name, folder_ / name / "own.safetensors"}).code, 0);
  EXPECT_EQ(read_file(folder_ / "first" / "own.safetensors"), read_file(folder_ / "again" / "own.safetensors"));
}

TEST_F(TrainCommand, ExportsTheTokenizerAndTheClassesOfLabelledTexts) {
  std::string rows = "text,label\n";
  for (int i = 0; i < 10; ++i) rows += "good day,positive\nbad day,negative\n";
  folder_.write("rows.csv", rows);
  folder_.write("bert.toml", R"([run]
steps = 1
batch_size = 2
[model]
kind = "bert"
head = "pooled"
layers = 1
heads = 2
channels = 16
[data]
kind = "labelled_text"
path = ")" + (folder_ / "rows.csv").string() +
                                 R"("
target = ["label"]
tokens = "byte"
context = 8
)");
  ASSERT_EQ(run("bert.toml", "first").code, 0);
  const std::string out = folder_ / "out/";
  ASSERT_EQ(train({"export", folder_ / "first", out}).code, 0);
  const auto tokenizer = nlohmann::json::parse(read_file(out + "tokenizer.json"));
  EXPECT_EQ(tokenizer["added_tokens"].back()["id"], 256);
  EXPECT_EQ(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"], "[CLS]");
  EXPECT_EQ(nlohmann::json::parse(read_file(out + "tokenizer_config.json"))["cls_token"], "[CLS]");
  EXPECT_FALSE(read_safetensors(out + "model.safetensors").tensors.contains("cls.predictions.decoder.weight"));

  // The same classes in another order would be other classes.
  auto config = nlohmann::json::parse(read_file(out + "config.json"));
  ASSERT_EQ(config["id2label"], (nlohmann::json{{"0", "negative"}, {"1", "positive"}}));
  config["id2label"] = {{"0", "positive"}, {"1", "negative"}};
  replace_file(out + "config.json", config.dump());
  const Ended swapped = train({"import", out, folder_ / "bert.toml", folder_ / "again"});
  EXPECT_EQ(swapped.code, 2);
  EXPECT_NE(swapped.err.find("has the class 'positive' as number 0, which is 'negative' in these data"),
            std::string::npos)
      << swapped.err;
  EXPECT_EQ(train({"import", out, folder_ / "bert.toml", folder_ / "again", "--except", "classifier.*"}).code, 0);
}

TEST_F(TrainCommand, ExportsNoFolderForNetworksWithoutAClass) {
  ASSERT_EQ(run("images.toml", "first").code, 0);
  const Ended refused = train({"export", folder_ / "first", folder_.path() + "/out/"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("neither Hugging Face's transformers nor torchvision has a network of kind 'layers'"),
            std::string::npos)
      << refused.err;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  // What cannot be written leaves nothing behind.
  ASSERT_EQ(run("text.toml", "text").code, 0);
  fs::create_directories(folder_ / "full/model.safetensors/x");
  EXPECT_EQ(train({"export", folder_ / "text", folder_ / "full", "--force"}).code, 3);
  EXPECT_EQ(names_in(folder_ / "full"), std::set<std::string>{"model.safetensors"});
}

TEST_F(TrainCommand, WritesLogits) {
  ASSERT_EQ(run("text.toml", "text").code, 0);
  const std::string file = folder_ / "logits.safetensors";
  const Ended score = train({"eval", folder_ / "text", "--json", "--logits", file});
  ASSERT_EQ(score.code, 0) << score.err;
  const StateDict tensors = read_safetensors(file).tensors;
  const int64_t samples = nlohmann::json::parse(score.out)["samples"].get<int64_t>();
  EXPECT_EQ(tensors.at("logits").shape(), Shape({samples, 32, 256}));
  EXPECT_EQ(tensors.at("targets").shape(), Shape({samples, 32}));
  const std::string rounded = folder_ / "images";
  ASSERT_EQ(run("images.toml", "images").code, 0);
  ASSERT_EQ(train({"eval", rounded, "--logits", file}).code, 0);  // replaces the file
  EXPECT_EQ(read_safetensors(file).tensors.at("logits").shape()[1], 3);
}

// Before anything is read or computed, so that no work is lost.
TEST_F(TrainCommand, FilesThatCannotBeWrittenAreFoundFirst) {
  const std::string there = folder_ / "there", below = folder_ / "absent/file";
  replace_file(there, "mine");
  const std::vector<std::vector<std::string>> commands = {
      {"eval", folder_ / "no run", "--confusion"},
      {"eval", folder_ / "no run", "--logits"},
      {"predict", folder_ / "no run", folder_ / "no image", "--csv"}};
  for (std::vector<std::string> command : commands) {
    for (const auto& [file, reason] : {std::pair(below, "there is no folder " + (folder_ / "absent").string()),
                                       std::pair(folder_.path(), std::string("it is a folder; name a file in it"))}) {
      std::vector<std::string> words = command;
      words.push_back(file);
      const Ended refused = train(words);
      EXPECT_EQ(refused.code, 3);
      EXPECT_EQ(refused.err, "train: cannot create " + file + ": " + reason + "\n");
    }
    command.push_back(there);
    EXPECT_NE(train(command).code, 0) << "there is no run";
    EXPECT_EQ(read_file(there), "mine");
  }
  EXPECT_EQ(names_in(folder_.path()).count("there"), 1u);
}

TEST_F(TrainCommand, AnExportTouchesNoOtherFile) {
  ASSERT_EQ(run("images.toml", "first").code, 0);
  const std::string out = folder_ / "weights.safetensors";
  replace_file(out + ".new", "mine");
  ASSERT_EQ(train({"export", folder_ / "first", out}).code, 0);
  EXPECT_EQ(read_file(out + ".new"), "mine");
  EXPECT_EQ(read_safetensors(out).metadata.at("format"), "pt");
}

}  // namespace
}  // namespace elinvar
