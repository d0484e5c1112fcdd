#pragma once
// The term of a run's coordinator. Term k exists if and only if coordinators/<k>.json in the run directory was created,
// which only one process can do for each k. The newest term counts; the holder of an older one must stop. While it
// lives, the holder counts in coordinators/<k>.beat, so that others can see that it does.
//
// Files that a holder writes after its term is over must not count. A holder therefore checks that its term is still
// the newest before it confirms anything. Its successor first creates the record of its term and then reads the run's
// files, so it finds everything that was confirmed. It then gives the files other inodes (LineFile::renew), so that
// late writes are lost.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "comm/peer.h"
#include "tensor/base/file.h"
#include "tensor/base/json_value.h"

namespace elinvar {

struct Term {
  int64_t number = 0;
  uint64_t run = 0;
  PeerId peer = 0;
  std::string endpoint = {};
  JsonValue job = {};  // what a successor must know about the run
};

// Returns the newest term; null if there is no run or its directory cannot be read from here. Throws Failure if the
// record cannot be read.
std::optional<Term> newest_term(const std::filesystem::path& run_directory);
int64_t beats_of(const std::filesystem::path& run_directory, int64_t term);  // counted beats; 0: none

class HeldTerm {
 public:
  // Throws Failure if another process has just created the record.
  HeldTerm(const std::filesystem::path& run_directory, const Term& term);
  int64_t number() const { return number_; }
  // held: this process may write the run's files. superseded: there is a newer term. displaced: the run directory was
  // deleted, moved or replaced, so that writes go elsewhere or nowhere.
  enum class Standing { held, superseded, displaced };
  Standing standing() const;
  bool newest() const;  // throws Failure if displaced
  void beat();

 private:
  std::filesystem::path run_directory_, directory_;
  int64_t number_, beats_ = 0;
  std::filesystem::path beat_file_, next_;  // the beat file of this term, and the record of its successor
  std::optional<File> record_;              // this term's record; always set
};

}  // namespace elinvar
