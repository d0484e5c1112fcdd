// Damage to the files and folders of a run: while it lives, and between a stop and a --resume.
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/support/lines.h"
#include "tests/torture/faults.h"

namespace elinvar::test {

namespace fs = std::filesystem;

namespace {

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

void write_over(const fs::path& path, const std::string& text) {  // keeps the inode, for processes that have it open
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(text.data(), static_cast<std::streamsize>(text.size()));
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Returns `text` damaged as `how` says.
std::string damaged(Dice& dice, const std::string& how, std::string text) {
  std::vector<std::string> lines = lines_of(text);
  const auto size = static_cast<int64_t>(text.size()), count = static_cast<int64_t>(lines.size());
  const auto at = static_cast<size_t>(dice.number(std::max<int64_t>(1, size)));
  const auto line = static_cast<std::ptrdiff_t>(dice.number(std::max<int64_t>(1, count)));
  const auto other = static_cast<std::ptrdiff_t>(dice.number(std::max<int64_t>(1, count)));
  const char noise = static_cast<char>(1 << dice.number(8));
  if (how == "empty" || size == 0) return "";
  if (how == "flip") text[at] ^= noise;
  else if (how == "cut") text.resize(at);
  else if (how == "zeros") std::fill(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), '\0');
  else if (how == "longer") text += std::string(1 + at % 100, noise);
  else if (how == "nested") text = std::string(200000, '[');
  else if (how == "number") text = "1e99999\n";
  else if (how == "words") text = "{\"step\":\"seven\",\"run\":-1,\"endpoint\":7}\n";
  if (how == "doubled") lines.insert(lines.begin() + line, lines[static_cast<size_t>(line)]);
  else if (how == "removed") lines.erase(lines.begin() + line);
  else if (how == "swapped") std::swap(lines[static_cast<size_t>(line)], lines[static_cast<size_t>(other)]);
  else return text;
  return joined(lines);
}

}  // namespace

// Removes or replaces something in the run directory.
void Torture::harm(const std::string& target, const std::string& how) {
  const fs::path path = target.empty() ? run(name_) : run(name_) / target;
  if (!is_there(path)) return;
  ++faults_;
  std::error_code ignored;
  if (has_finished(run(name_))) taken_.over = true;
  if (how == "emptied") {
    if (fs::is_regular_file(path)) write_over(path, "");
    else
      for (const auto& entry : fs::directory_iterator(path, ignored)) fs::remove_all(entry.path(), ignored);
    return;
  }
  if (how == "away") {
    const fs::path aside = folder_ / fmt::format("{}-moved-{}", name_, moved_.size());
    fs::rename(path, aside, ignored);
    if (!ignored) moved_.emplace_back(aside, path);
    if (target.empty() && has_finished(aside)) taken_.over = true;
    return;
  }
  // At once, so that it is known whether the job had already finished.
  const fs::path removed = folder_ / (name_ + "-removed");
  fs::rename(path, removed, ignored);
  if (target.empty() && has_finished(removed)) taken_.over = true;
  fs::remove_all(removed, ignored);
  for (int i = 0; i < 5 && is_there(path); ++i) fs::remove_all(path, ignored);  // the job may have made it again
  if (how == "file") write_over(path, "");
  else if (how == "folder") fs::create_directory(path, ignored);
  else if (how == "link") fs::create_symlink("/nowhere/at/all", path, ignored);
  else if (how == "loop") fs::create_symlink(path.filename(), path, ignored);
  else if (how == "pipe") (void)!::mkfifo(path.c_str(), 0600);
}

void Torture::restore() {
  if (!disk_.empty()) {
    std::error_code ignored;
    fs::remove(run(name_) / "filler", ignored);
    (void)!::mount("tmpfs", disk_.c_str(), "tmpfs", MS_REMOUNT, "size=64m,nr_inodes=0");
  }
  for (const auto& [aside, path] : std::exchange(moved_, {})) {
    std::error_code ignored;
    if (!is_there(path)) fs::rename(aside, path, ignored);
  }
}

// A separate disk for the run: with little room from the start, or filled by another process at some step, for a while
// or until the job has ended.
void Torture::disk(Dice& dice, Phase& phase) {
  const bool first = disk_.empty(), small = dice.chance(0.5);
  std::string room = "size=64m,nr_inodes=0";
  if (small && dice.chance(0.3)) room = fmt::format("size=64m,nr_inodes={}", dice.between(4, 60));
  else if (small) room = fmt::format("size={}k,nr_inodes=0", 4 * dice.between(1, 60));
  if (first) {
    fs::create_directories(run(name_));
    disk_ = run(name_).string();
  }
  const unsigned long flags = first ? 0 : MS_REMOUNT;
  if (::mount("tmpfs", disk_.c_str(), "tmpfs", flags, room.c_str()) != 0) room = "as it was";
  tell("a disk, " + room);
  ++faults_;
  if (small) return;
  const fs::path filler = run(name_) / "filler";
  const int64_t step = dice.number(kSteps);
  tell(fmt::format("full at step {}", step));
  phase.deeds.push_back({.step = step, .seconds = dice.real(0.02), .act = [filler] {
                           std::ofstream file(filler, std::ios::binary);
                           const std::string bytes(4096, 'x');
                           while (file.write(bytes.data(), 4096).flush()) {
                           }
                         }});
  if (!dice.chance(0.4)) return;
  const double seconds = dice.real(2);
  tell(fmt::format("room {:.2f} s later", seconds));
  phase.deeds.push_back({.step = step, .seconds = 0.1 + seconds, .act = [filler] { fs::remove(filler); }});
}

void Torture::take_disk_away() {
  if (!disk_.empty()) ::umount2(disk_.c_str(), MNT_DETACH);
  disk_.clear();
}

void Torture::directories(Dice& dice, Phase& phase) {
  const std::string target = dice.pick<std::string>(
      {"", "", "checkpoints", "checkpoints", "coordinators", "generations", "ledger.jsonl", "digests.jsonl",
       "events.jsonl", "metrics.jsonl", "lock", "workers.lock", "config.toml", "environment.json", "coordinator.json",
       "checkpoints/step-40", "coordinators/1.json", "coordinators/1.beat", "generations/1.json"});
  const std::string how = dice.pick<std::string>(
      {"removed", "removed", "away", "away", "emptied", "file", "folder", "link", "loop", "pipe"});
  const int64_t step = dice.number(kSteps);
  tell(fmt::format("'{}' {} at step {}", target, how, step));
  phase.deeds.push_back({.step = step, .seconds = dice.real(0.05), .act = [this, target, how] { harm(target, how); }});
  // A run cannot continue from what is lost for good; the next start names the loss.
  taken_.names = {target.empty() ? name_ : fs::path(target).filename().string()};
  if (target.starts_with("checkpoints")) taken_.names.insert({"checkpoints", "checkpoint"});
  taken_.ledger = target.empty() || target == "ledger.jsonl" || target == "digests.jsonl";
  taken_.checkpoints = target.empty() || target.starts_with("checkpoints");
  if (dice.chance(0.3)) signals(dice, phase);
}

std::string Torture::damage(Dice& dice, const std::string& name) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(run(name)))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  if (files.empty()) return "there is nothing to damage";
  std::string told;
  for (int64_t i = dice.chance(0.7) ? 1 : 2; i > 0; --i) {
    const fs::path path = dice.pick(files);
    const std::string how =
        dice.pick<std::string>({"flip", "flip", "flip", "cut", "cut", "zeros", "longer", "nested", "number", "words",
                                "doubled", "removed", "swapped", "empty", "gone", "folder"});
    const std::string file = path.lexically_relative(run(name)).string();
    told += fmt::format("{}{} {}", told.empty() ? "damage: " : ", ", file, how);
    ++faults_;
    taken_.names.insert({file, path.filename().string()});
    if (file.starts_with("checkpoints/")) {
      taken_.checkpoints = true;
      taken_.names.insert(path.parent_path().filename().string());
    }
    taken_.ledger = taken_.ledger || file == "ledger.jsonl" || file == "digests.jsonl";
    taken_.checkpoints = taken_.checkpoints || file == "events.jsonl" || file == "ledger.jsonl";
    if (!fs::is_regular_file(path)) continue;
    if (how == "gone" || how == "folder") {
      fs::remove(path);
      if (how == "folder") fs::create_directory(path);
    } else {
      write_over(path, damaged(dice, how, read_file(path)));
    }
  }
  return told;
}

}  // namespace elinvar::test
