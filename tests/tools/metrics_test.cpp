#include "tools/training/metrics.h"

#include <gtest/gtest.h>

#include "tensor/base/file.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

TEST(Metrics, AResumedRunDropsLaterLinesAndKeepsOthers) {
  const test::TemporaryFolder folder;
  const std::string before = "{\"step\":1,\"loss\":3}\n{\"step\":1,\"validation_loss\":2}\n", damaged = "{\"ste?\n",
                    after = "{\"step\":2,\"loss\":1}\n", later = "{\"step\":3,\"loss\":1}\n";
  folder.write("metrics.jsonl", before + damaged + after + later);
  Metrics metrics(folder.path(), 2);
  EXPECT_EQ(metrics.last_validation(), 1);
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), before + damaged + after);
}

}  // namespace
}  // namespace elinvar
