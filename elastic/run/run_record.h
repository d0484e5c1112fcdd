#pragma once
// The record that a run has left in its directory, for whoever reads it afterwards: nothing is changed, and a file that
// was cut off or damaged at any byte costs the lines that it falls on. What is wrong is listed, in words. Of a step it
// holds the line of the ledger alone, some 250 bytes; what else there is of each is read from its file when it is asked
// for.
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
  int64_t line = 0;  // from 1 on; 0: the file as a whole
  std::string what;
  bool cut_off = false;  // no more than its last line is missing, as a crash leaves it
};
std::string to_string(const Damage& damage);  // "ledger.jsonl, line 7: its checksum is ..."

class RunRecord {
 public:
  // UsageError if there is no run, Failure if its ledger is of another version.
  explicit RunRecord(const std::filesystem::path& directory);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<Damage>& damage() const { return damage_; }

  const std::optional<LedgerHeader>& header() const { return header_; }
  const std::map<int64_t, LedgerLine>& lines() const { return lines_; }  // by step
  const std::optional<DigestHeader>& digest_header() const { return digest_header_; }
  std::optional<DigestLine> digests(int64_t step) const;  // of digests.jsonl

  // The lines of metrics.jsonl, objects with a "step", one after another; returns what is wrong with the file.
  std::vector<Damage> metrics(const std::function<void(const nlohmann::json& line)>& each) const;
  const std::vector<nlohmann::json>& events() const { return events_; }  // objects with "time" and "event", texts
  const nlohmann::json& environment() const { return environment_; }     // {} if there is none
  struct Worker {
    int id = 0;  // 0: it was in no generation
    PeerId peer = 0;
    std::string joined;  // when
    nlohmann::json environment;
  };
  const std::vector<Worker>& workers() const { return workers_; }  // in the order in which they introduced themselves

  const std::vector<int64_t>& checkpoints() const { return checkpoints_; }  // ascending; some may be damaged
  Checkpoint checkpoint(int64_t step) const { return store_.read(step); }   // verified; throws Failure
  // The digest of the state after a step, as the ledger or else a checkpoint's manifest has it.
  std::optional<Digest> state(int64_t step) const;

 private:
  struct Place {
    int64_t offset;
    size_t bytes;
  };
  using EachLine = std::function<void(const std::string& line, int64_t number, const Place& place)>;
  // Whole lines, numbered from 1 on; returns how many. What follows the last newline is damage.
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
  std::map<int64_t, Place> digests_;  // lines of digests.jsonl, by step
  std::vector<nlohmann::json> events_;
  nlohmann::json environment_ = nlohmann::json::object();
  std::vector<Worker> workers_;
};

}  // namespace elinvar
