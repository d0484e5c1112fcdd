// The page of a pool as a browser requests it, and its data.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"
#include "tools/pool/hosts/process.h"
#include "tools/pool/page/page.h"
#include "tools/pool/page/view.h"

namespace elinvar::pool {
namespace {

class PoolPage : public testing::Test {
 protected:
  void SetUp() override {
    JobRecord job;
    job.name = "one";
    job.submitted = wall_clock();
    job.steps = 100;
    const Id id = store_.jobs.add(job);
    const Id slot = store_.slots.add(
        SlotRecord{.source = "here", .host = "localhost", .kind = "cpu-1", .device = "cpu", .since = wall_clock()});
    store_.processes.add(ProcessRecord{.job = id, .slots = {slot}, .started = wall_clock()});
    store_.log.add(wall_clock(), id, "plan", "1 slot: </script> because", "localhost");
    page_.emplace(folder_ / "pool", 0);
    const std::string url = page_->url();
    port_ = std::stoi(url.substr(url.rfind(':') + 1));
  }
  // Returns the whole answer; `host` is the name by which the browser addresses the page.
  std::string ask(const std::string& line, const std::string& host = "") {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string name = host.empty() ? "127.0.0.1:" + std::to_string(port_) : host;
    const std::string request = line + " HTTP/1.1\r\nHost: " + name + "\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(::send(socket, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string answer;
    char bytes[4096];
    for (ssize_t n = 0; (n = ::recv(socket, bytes, sizeof bytes, 0)) > 0;) answer.append(bytes, static_cast<size_t>(n));
    ::close(socket);
    return answer;
  }
  static std::string body(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

  elinvar::test::TemporaryFolder folder_;
  Store store_{folder_ / "pool"};
  std::optional<Page> page_;
  int port_ = 0;
};

TEST_F(PoolPage, NeedsNothingButItself) {
  const std::string answer = ask("GET /");
  EXPECT_EQ(answer.substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_NE(answer.find("<title>Elinvar pool</title>"), std::string::npos);
  EXPECT_NE(answer.find("function draw_machines"), std::string::npos);
  for (const char* placeholder : {"@STYLE@", "@SCRIPT@", "<link", "src="})
    EXPECT_EQ(answer.find(placeholder), std::string::npos) << placeholder;
}

TEST_F(PoolPage, TellsWhatIsThere) {
  const nlohmann::json data = nlohmann::json::parse(body(ask("GET /data.json?window=3600")));
  EXPECT_EQ(data.at("jobs").at(0).at("name"), "one");
  EXPECT_EQ(data.at("jobs").at(0).at("workers"), 1);
  EXPECT_EQ(data.at("slots").at(0).at("job"), 1);
  EXPECT_EQ(data.at("log").at(0).at("reason"), "1 slot: </script> because");
  EXPECT_FALSE(data.at("daemon").get<bool>());
}

// The page as its script draws it, in Debian's browser.
TEST_F(PoolPage, IsDrawnByABrowser) {
  const std::string browser = "/usr/bin/chromium";
  if (!std::filesystem::exists(browser)) GTEST_SKIP() << "there is no " << browser;
  for (const double predicted : {104.0, 96.0, 110.0})
    store_.measurements.record(
        1, static_cast<int64_t>(predicted),
        {.workers = {{"cpu-1", 1}}, .shape = {}, .seconds = 20, .rate = 100, .predicted = predicted});
  JobRecord job = *store_.jobs.find(1);
  job.shape.width = 2;
  store_.jobs.save(job);
  const ProgramOutput page =
      run_program({browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--user-data-dir=" + (folder_ / "browser").string(), "--virtual-time-budget=10000",
                   "--window-size=1200,900", "--dump-dom", page_->url()},
                  120);
  ASSERT_EQ(page.code, 0) << page.err;
  for (const char* drawn : {"predictions", "4.0 % off", "the median of 3", "2 slots a worker", "1 of 1", "because"})
    EXPECT_NE(page.out.find(drawn), std::string::npos) << drawn << "\n" << page.out;
  EXPECT_NE(page.out.find("<svg"), std::string::npos) << "the time line\n" << page.out;
}

TEST_F(PoolPage, TellsPrometheus) {
  const std::string text = body(ask("GET /metrics"));
  EXPECT_NE(text.find("elinvar_pool_jobs{state=\"waiting\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("elinvar_pool_slots_used 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("elinvar_pool_job_workers{job=\"1\",name=\"one\"} 1\n"), std::string::npos) << text;
}

TEST_F(PoolPage, IsForThisHostAndOnlyToLookAt) {
  EXPECT_EQ(ask("GET /data.json", "evil.example").substr(9, 3), "403") << "led here by another name";
  EXPECT_EQ(ask("POST /").substr(9, 3), "405");
  EXPECT_EQ(ask("DELETE /data.json").substr(9, 3), "405");
  EXPECT_EQ(ask("GET /../pool.db").substr(9, 3), "404");
}

}  // namespace
}  // namespace elinvar::pool
