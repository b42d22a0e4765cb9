/// Elastic process: a rank of an elastic job that is a process, which a launcher has started.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/control/elastic/membership.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ElasticProcess final : public ElasticGroup {
  public:
    /// Returns whether the request is that of an elastic job.
    [[nodiscard]] static bool serves(const JobRequest& request);

    /// Joins the job. Does not wait for other processes.
    [[nodiscard]] static ProcessGroup join(const JobRequest& request);

  private:
    explicit ElasticProcess(const JobRequest& request);

    [[nodiscard]] static std::shared_ptr<Store> open_store(const JobRequest& request,
                                                           const std::string& address,
                                                           std::chrono::milliseconds timeout);

    [[nodiscard]] DPTK_INLINE ProcessGroup connect() override;
    [[nodiscard]] const Generation& current() const override { return membership_.generation(); }
    [[nodiscard]] std::optional<std::string> why_ended() override { return membership_.why_ended(); }
    void note_formed() override { membership_.note_formed(); }
    void note_finishing() override { membership_.note_finishing(); }

    JobRequest request_;
    Membership membership_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/elastic_process.ipp"
#endif
