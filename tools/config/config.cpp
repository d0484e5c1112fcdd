#include "tools/config/config.h"

#include <algorithm>
#include <iterator>

#include "data/utf8.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/config/keys.h"
#include "tools/config/ready_configs.h"
#include "tools/config/spec_toml.h"
#include "tools/config/table.h"
#include "tools/config/toml_text.h"

namespace elinvar {
namespace {

// Settings that may change when a run resumes, because they do not affect results.
const std::vector<std::string> kFree = {"run.name",
                                        "data.path",  // the data themselves are compared by their digest
                                        "data.tokenizer",
                                        "run.keep",
                                        "run.recompute",
                                        "run.cuda_graphs",
                                        "run.audit_every",
                                        "run.eval_every",
                                        "run.log_every",
                                        "run.data_plane",
                                        "run.group_timeout",
                                        "data.cache_mb",
                                        "data.cache_dir",
                                        "data.index_dir",
                                        "data.broken",
                                        "data.threads",
                                        "data.prefetch",
                                        "tensorboard.scalars",
                                        "tensorboard.histograms_every",
                                        "tensorboard.images_every",
                                        "tensorboard.images",
                                        "tensorboard.text_every",
                                        "tensorboard.prompt",
                                        "tensorboard.text_tokens"};

// Settings that may not change when a run resumes, although they do not affect results.
const std::vector<std::string> kIndifferent = {"run.state_digest_every", "run.checkpoint_every", "ledger.leaves",
                                               "ledger.tensors_every"};

// Settings that older runs do not have. Where they have no effect they are left out, so that digests stay the same.
const std::vector<std::pair<std::string, std::string>> kLater = {
    {"data.augment_epochs", "0"},       {"data.special_tokens", "false"}, {"data.masking", "0.0"},
    {"data.targets_as_input", "false"}, {"optimizer.ema_decay", "0.0"},   {"optimizer.sparse", "[]"},
    {"optimizer.sparse_kind", "\"\""},  {"optimizer.sparse_lr", "0.0"},   {"data.most_ids", "[]"},
    {"data.separator", "\"|\""}};

template <class... Parts>
std::vector<std::pair<std::string, std::string>> keys_of(Parts... parts) {
  TableWriter writer;
  (visit(writer, parts), ...);
  return writer.entries();
}

// Returns the tables of all keys that have the same place in every configuration; those of [model] depend on its kind.
KeyHomes homes_of_keys() {
  KeyHomes homes;
  const auto add = [&](const char* table, const auto&... parts) {
    for (const auto& [key, value] : keys_of(parts...))
      if (key != "kind") homes[key].insert(table);
  };
  add("run", RunConfig());
  for (const char* kind : {"text", "labelled_text", "text_pairs", "table", "ratings", "synthetic_table", "coco"})
    add("data", DataConfig{.kind = kind}, ReaderConfig());
  add("loss", CrossEntropyOptions());
  add("optimizer", OptimizerConfig{.kind = "sgd"});
  add("schedule", ScheduleConfig());
  add("ledger", LedgerConfig());
  add("tensorboard", TensorBoardConfig());
  return homes;
}

struct Section {
  std::string name;
  std::vector<std::pair<std::string, std::string>> entries;
};

// Returns all tables except [model].
std::vector<Section> sections_of(const Config& c) {
  std::vector<Section> sections = {{"run", keys_of(c.run)},
                                   {"data", keys_of(c.data, c.reader)},
                                   {"loss", keys_of(c.loss)},
                                   {"optimizer", keys_of(c.optimizer)},
                                   {"schedule", keys_of(c.schedule)},
                                   {"ledger", keys_of(c.ledger)},
                                   {"tensorboard", keys_of(c.tensorboard)}};
  if (!c.task.kind.empty()) {  // older runs do not have it
    sections.push_back({"task", {{"kind", TableWriter::text(c.task.kind)}}});
    std::ranges::move(entries_of(c.task), std::back_inserter(sections.back().entries));
  }
  std::ranges::move(entries_of(c.data.own), std::back_inserter(sections[1].entries));
  std::ranges::move(entries_of(c.optimizer.own), std::back_inserter(sections[3].entries));
  // Writes only the one of steps and epochs that is set.
  std::erase_if(sections[0].entries,
                [&](const auto& entry) { return entry.first == (c.run.steps > 0 ? "epochs" : "steps"); });
  if (!c.fast()) std::erase_if(sections[0].entries, [](const auto& entry) { return entry.first == "precision"; });
  std::erase_if(sections[0].entries, [&](const auto& entry) {
    return (entry.first == "ramp_steps" && !c.adaptive()) || (entry.first.starts_with("grow_") && !c.grows()) ||
           (entry.first == "batch_max" && !c.adaptive() && !c.grows());
  });
  return sections;
}

// Whether the name can be a folder in the current directory, and can be printed.
bool names_a_folder(const std::string& name) {
  constexpr size_t kLongest = 200;
  return !name.empty() && name.size() <= kLongest && name.front() != '.' && name.find('/') == std::string::npos &&
         is_printable(name);
}

// Returns the network's settings. A single virtual shard, tables that do not grow, and sums of bags are left out, as
// older runs do not have these settings.
Spec model_of(const Config& config) {
  Spec model = config.model;
  if (config.virtual_shards() == 1) model.settings.erase("virtual_shards");
  if (model.kind == "dlrm" || model.kind == "deepfm" || model.kind == "neumf")
    for (const auto& [name, older] :
         {std::pair("rows", Value(int64_t{0})), std::pair("bags", Value(std::string("sum")))})
      if (const auto found = model.settings.find(name); found != model.settings.end() && found->second.value == older)
        model.settings.erase(found);
  return model;
}

// Returns all settings by key, except these.
std::map<std::string, std::string> settings_without(const Config& config, const std::vector<std::string>& keys) {
  std::map<std::string, std::string> all;
  for (const Section& section : sections_of(config))
    for (const auto& [key, value] : section.entries) all[section.name + "." + key] = value;
  all["model"] = model_spec_to_toml(model_of(config));
  for (const std::string& key : keys) all.erase(key);
  return all;
}

}  // namespace

LedgerOptions Config::ledger_options() const {
  return {.leaves = leaves_from(ledger.leaves), .tensors_every = ledger.tensors_every};
}

int default_virtual_ranks(int64_t batch_size) { return static_cast<int>(std::clamp<int64_t>(batch_size / 8, 1, 4)); }

Config parse_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides) {
  const TomlSource source(text, name, overrides);
  static const KeyHomes homes = homes_of_keys();
  source.refuse_unknown_tables(
      {"run", "model", "task", "data", "loss", "optimizer", "schedule", "ledger", "tensorboard"}, homes);
  Config c;
  c.run.name = std::filesystem::path(name).stem().string();

  const auto read_known = [&](const char* table, auto&... parts) {
    TableReader reader(source, table);
    (visit(reader, parts), ...);
    return reader;
  };
  const auto read = [&](const char* table, auto&... parts) {
    TableReader reader = read_known(table, parts...);
    reader.refuse_unknown_keys(homes);
    return reader;
  };
  // Reads a table of a kind that the program has registered, which may have more keys; they are checked where they are
  // used.
  const auto read_own = [&](const char* table, bool built_in, Spec& own, const TableReader& reader) {
    if (built_in) reader.refuse_unknown_keys(homes);
    else own = read_spec(source, table, reader.known());
  };
  const TableReader run = read("run", c.run);
  if (c.run.batch_size == 0) run.refuse("batch_size", "is missing: the samples of one step, over all virtual ranks");
  if (c.run.steps > 0 && c.run.epochs > 0) run.refuse("epochs", "and run.steps exclude each other");
  if (c.run.steps == 0 && c.run.epochs == 0) {
    if (run.has("epochs") && !run.has("steps"))
      run.refuse("epochs", "must be more than 0, where run.steps is not given");
    run.refuse("steps", "or run.epochs is missing");
  }
  if (!names_a_folder(c.run.name))
    run.refuse("name",
               "must be the name of a folder: UTF-8 of at most 200 bytes, without '/', a leading '.' and control "
               "characters");
  c.chooses_virtual_ranks = run.has("virtual_ranks");
  if (!c.chooses_virtual_ranks) c.run.virtual_ranks = default_virtual_ranks(c.run.batch_size);
  if (c.run.virtual_ranks > c.run.batch_size)
    run.refuse("virtual_ranks", fmt::format("= {} are more than the {} samples of run.batch_size", c.run.virtual_ranks,
                                            c.run.batch_size));

  if (!c.fast() && !c.run.precision.empty()) run.refuse("precision", "has a meaning only with run.numerics = \"fast\"");
  if (c.fast() && c.run.precision.empty()) c.run.precision = "bf16";

  if (c.adaptive() && c.grows()) run.refuse("grow_every", "excludes run.scaling = \"adaptive\"");
  if (!c.grows() && run.has("grow_factor")) run.refuse("grow_factor", "has a meaning only with run.grow_every");
  if (c.adaptive() && c.run.batch_max == 0)
    run.refuse("batch_max", "is missing: the most samples that a step may have with run.scaling = \"adaptive\"");
  if (c.grows() && c.run.batch_max == 0)
    run.refuse("batch_max", "is missing: the most samples that a step may have with run.grow_every");
  if (c.largest_batch() < c.run.batch_size)
    run.refuse("batch_max",
               fmt::format("= {} are fewer than the {} samples of run.batch_size", c.run.batch_max, c.run.batch_size));
  if (!c.adaptive() && !c.grows() && c.run.batch_max > 0)
    run.refuse("batch_max", "has a meaning only with run.scaling = \"adaptive\" or run.grow_every");

  const TableReader data = read_known("data", c.data, c.reader);
  if (c.data.kind.empty()) data.refuse("kind", "is missing");
  read_own("data", is_built_in_dataset(c.data.kind), c.data.own, data);
  read("loss", c.loss);
  const TableReader optimizer = read_known("optimizer", c.optimizer);
  read_own("optimizer", is_built_in_optimizer(c.optimizer.kind), c.optimizer.own, optimizer);
  read("schedule", c.schedule);
  read("ledger", c.ledger);
  read("tensorboard", c.tensorboard);
  c.places = source.places();
  with_places(c.places, [&] {
    check_optimizer(c.optimizer);
    check_schedule(c.schedule);
  });
  c.model = read_model_spec(source);
  if (source.root().contains("task")) {
    c.task = read_spec(source, "task", {});
    check(!c.task.kind.empty(), "{}: task.kind is missing", c.task.place);
  }
  return c;
}

Config read_config(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  check(exists || !ready_config(path.string()), "there is no configuration {0}; train configs {0} copies the ready one",
        path.string());
  check(exists, "there is no configuration {}", path.string());
  check(!std::filesystem::exists(path / "ledger.jsonl", error),
        "{0} is a run directory, not a configuration; did you mean resume {0}?", path.string());
  check(std::filesystem::is_regular_file(path, error), "{} is no configuration: it is not a regular file",
        path.string());
  const auto bytes = std::filesystem::file_size(path, error);  // checked before memory is allocated
  check(error || bytes <= kMostTomlBytes, "{}: a configuration of {} bytes; the most is {}", path.string(), bytes,
        kMostTomlBytes);
  return parse_config(read_file(path), path.string(), overrides);
}

std::string to_toml(const Config& config) {
  std::string text;
  for (const Section& section : sections_of(config)) {
    text += fmt::format("[{}]\n", section.name);
    for (const auto& [key, value] : section.entries) text += fmt::format("{} = {}\n", key, value);
    text += "\n";
  }
  return text + model_spec_to_toml(config.model);
}

std::vector<std::string> differences(const Config& before, const Config& now) {
  const auto fixed_settings = [](const Config& config) {
    auto all = settings_without(config, kFree);
    all.erase("model");
    all["model.kind"] = TableWriter::text(config.model.kind);
    for (const auto& [key, value] : entries_of(model_of(config))) all["model." + key] = value;
    return all;
  };
  constexpr size_t kLongest = 60;  // a longer value, as of a list of layers, says nothing in a message
  const auto shown = [](const std::string& value) { return value.size() <= kLongest ? value : std::string("..."); };
  std::vector<std::string> found;
  const auto old_values = fixed_settings(before), new_values = fixed_settings(now);
  for (const auto& [key, value] : old_values) {
    const auto other = new_values.find(key);
    if (other == new_values.end()) found.push_back(fmt::format("{} = {} is gone", key, shown(value)));
    else if (other->second != value)
      found.push_back(std::max(value.size(), other->second.size()) > kLongest
                          ? fmt::format("{} changed", key)
                          : fmt::format("{} changed from {} to {}", key, value, other->second));
  }
  for (const auto& [key, value] : new_values)
    if (!old_values.contains(key)) found.push_back(fmt::format("{} = {} is new", key, shown(value)));
  return found;
}

std::map<std::string, std::string> decisive_settings(const Config& config) {
  std::map<std::string, std::string> settings = settings_without(config, kFree);
  for (const std::string& key : kIndifferent) settings.erase(key);
  for (const auto& [key, nothing] : kLater)
    if (const auto found = settings.find(key); found != settings.end() && found->second == nothing)
      settings.erase(found);
  // With these schedules the length of the run does not affect its steps.
  if (config.schedule.kind == "constant" || config.schedule.kind == "step")
    for (const char* length : {"run.steps", "run.epochs"}) settings.erase(length);
  return settings;
}

Digest digest(const Config& config) {
  Hasher hasher;
  for (const auto& [key, value] : decisive_settings(config)) {
    hasher.add(std::string_view(key));
    hasher.add(std::string_view(value));
  }
  return hasher.digest();
}

}  // namespace elinvar
