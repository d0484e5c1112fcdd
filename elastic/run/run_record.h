#pragma once
// Reads the record that a run has left in its directory. It changes nothing, and a file that was truncated or damaged
// at any byte loses only the affected lines. Damage is listed in words. In memory it keeps only the ledger line of each
// step, about 250 bytes; other data of a step are read from their file on demand.
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/packet.h"
#include "elastic/checkpoint/checkpoint.h"
#include "elastic/ledger/digest_file.h"
#include "elastic/ledger/ledger.h"

namespace elinvar {

struct Damage {
  std::string file;
  int64_t line = 0;  // counted from 1; 0: the file as a whole
  std::string what;
  bool cut_off = false;  // only the end of its last line is missing, as after a crash
};
std::string to_string(const Damage& damage);  // "ledger.jsonl, line 7: its checksum is ..."

class RunRecord {
 public:
  // Throws UsageError if there is no run, and Failure if its ledger has another version.
  explicit RunRecord(const std::filesystem::path& directory);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<Damage>& damage() const { return damage_; }

  const std::optional<LedgerHeader>& header() const { return header_; }
  const std::map<int64_t, LedgerLine>& lines() const { return lines_; }  // by step
  const std::optional<DigestHeader>& digest_header() const { return digest_header_; }
  std::optional<DigestLine> digests(int64_t step) const;  // the step's line of digests.jsonl

  // Reads the lines of metrics.jsonl, objects with a "step", in order. Returns what is wrong with the file.
  std::vector<Damage> metrics(const std::function<void(const nlohmann::json& line)>& each) const;
  const std::vector<nlohmann::json>& events() const { return events_; }  // objects with the texts "time" and "event"
  const nlohmann::json& environment() const { return environment_; }     // {} if the file is missing
  struct Worker {
    int id = 0;  // 0: it was in no generation
    PeerId peer = 0;
    std::string joined;  // the time at which it joined
    nlohmann::json environment;
  };
  const std::vector<Worker>& workers() const { return workers_; }  // in the order in which they introduced themselves

  const std::vector<int64_t>& checkpoints() const { return checkpoints_; }  // ascending; some may be damaged
  Checkpoint checkpoint(int64_t step) const { return store_.read(step); }   // verified; throws Failure
  // Returns the digest of the state after a step, from the ledger or else from a checkpoint's manifest.
  std::optional<Digest> state(int64_t step) const;

 private:
  struct Place {
    int64_t offset;
    size_t bytes;
  };
  using EachLine = std::function<void(const std::string& line, int64_t number, const Place& place)>;
  // Reads whole lines, numbered from 1, and returns their number. Text after the last newline is damage.
  int64_t read_lines(const std::string& file, const EachLine& each, std::vector<Damage>& damage) const;
  void read_ledger();
  void read_digests();
  void read_workers();
  void read_events();

  std::filesystem::path path_;
  CheckpointStore store_;
  std::vector<int64_t> checkpoints_;
  std::vector<Damage> damage_;
  std::optional<LedgerHeader> header_;
  std::map<int64_t, LedgerLine> lines_;
  std::optional<DigestHeader> digest_header_;
  std::map<int64_t, Place> digests_;  // the places of lines of digests.jsonl, by step
  std::vector<nlohmann::json> events_;
  nlohmann::json environment_ = nlohmann::json::object();
  std::vector<Worker> workers_;
};

}  // namespace elinvar
