// Files of a run: lines of its ledger, its whole record, a checkpoint.
#include "elastic/checkpoint/checkpoint.h"
#include "elastic/ledger/digest_file.h"
#include "elastic/ledger/ledger.h"
#include "elastic/ledger/sealed_line.h"
#include "elastic/run/run_record.h"
#include "tensor/base/check.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

template <class Line>
void read_line(const std::string& text) {
  try {
    const std::string written = Line::parse(text).text();
    must(Line::parse(written).text() == written, "a line that is written reads back as it is");
  } catch (const Failure&) {
  }
}

// Unchanged, and with a matching checksum: otherwise hardly any input would pass the check.
const FuzzTarget kLedger("ledger", [](std::string_view bytes) {
  std::vector<std::string> texts = {std::string(bytes)};
  if (const size_t seal = bytes.rfind(",\"sum\""); seal != std::string_view::npos)
    texts.push_back(sealed(std::string(bytes.substr(0, seal)) + "}"));
  for (const std::string& text : texts) {
    read_line<LedgerHeader>(text);
    read_line<LedgerLine>(text);
    read_line<DigestHeader>(text);
    read_line<DigestLine>(text);
  }
});

const FuzzTarget kRecord("record", [](std::string_view bytes) {
  const auto ledger = fuzz_file("run/ledger.jsonl", next_part(bytes));
  for (const char* file : {"digests.jsonl", "metrics.jsonl", "events.jsonl", "environment.json", "generations/1.json"})
    fuzz_file(std::string("run/") + file, next_part(bytes));
  const RunRecord record(ledger.parent_path());
  for (const Damage& damage : record.damage()) (void)to_string(damage);
  for (const auto& [step, line] : record.lines()) (void)record.digests(step);
});

const FuzzTarget kCheckpoint("checkpoint", [](std::string_view bytes) {
  const auto manifest = fuzz_file("checkpoints/step-1/manifest.json", next_part(bytes));
  fuzz_file("checkpoints/step-1/state.safetensors", bytes);
  const CheckpointStore store(manifest.parent_path().parent_path());
  (void)store.manifest_digest(1);
  try {
    store.open(1).verify_state();
  } catch (const Failure&) {
  }
  (void)store.read(1);
});

}  // namespace
}  // namespace elinvar::test
