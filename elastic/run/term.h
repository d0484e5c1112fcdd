#pragma once
// Who coordinates a run. Term k exists if and only if coordinators/<k>.json in the run directory was created, which
// only one process can do for each k; the newest counts, and whoever holds an older one has nothing more to say. While
// it lives the holder counts in coordinators/<k>.beat, so that others can see whether it does.
//
// What a holder writes after its term is over must not count. So it looks whether it still is the newest before it
// confirms anything to anyone; its successor creates the record of the term first and reads the run's files then,
// and so finds all that was confirmed, and gives them other inodes (LineFile::renew), so that what comes late is lost.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "comm/packet.h"
#include "tensor/base/file.h"

namespace elinvar {

struct Term {
  int64_t number = 0;
  uint64_t run = 0;
  PeerId peer = 0;
  std::string endpoint = {};
  nlohmann::json job = {};  // what a successor must know of the run
};

// The newest one; none: there is no run, or none can be seen from here. Throws Failure if it cannot be read.
std::optional<Term> newest_term(const std::filesystem::path& run_directory);
int64_t beats_of(const std::filesystem::path& run_directory, int64_t term);  // that were counted; 0: none

class HeldTerm {
 public:
  // Failure if somebody else has just created the record.
  HeldTerm(const std::filesystem::path& run_directory, const Term& term);
  int64_t number() const { return number_; }
  // held: the run's files are this process's to write. superseded: there is a newer term. displaced: the run
  // directory was deleted, moved or replaced, so that what is written goes elsewhere or nowhere.
  enum class Standing { held, superseded, displaced };
  Standing standing() const;
  bool newest() const;  // Failure if it is displaced
  void beat();

 private:
  std::filesystem::path run_directory_, directory_;
  int64_t number_, beats_ = 0;
  std::filesystem::path beat_file_, next_;  // of this term's count, and of its successor's record
  std::optional<File> record_;              // of this term, always there
};

}  // namespace elinvar
