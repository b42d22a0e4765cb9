/// The parameters of a model in training: their current addresses, which of them are ignored, and which are
/// tied.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/tied_parameters.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE::detail {

class ModelParameters {
  public:
    explicit ModelParameters(ParameterSource source);

    /// Finds the parameters for the first time. Throws ArgumentError if there are none, if they are unusable
    /// or overlap in memory, if the options ignore a name that no parameter has, or if they ignore only some
    /// of the parameters that are tied.
    void find(const DistributedDataParallelOptions& options = {});

    /// Re-reads all addresses. Returns whether any differs from before. Throws ArgumentError if the
    /// parameters have changed, including how they are tied.
    bool read_addresses();

    /// Re-reads all addresses, and asks for those of lazy gradients that exist.
    void read_all_addresses();

    /// Re-reads all addresses at the end of a step with marks. Throws ArgumentError as read_addresses() does,
    /// or if a gradient for which is_marked(i) is true has moved since the step began, since its elements may
    /// have been read at the previous address. With `keeps_lazy`, lazy gradients are not asked for.
    void read_addresses_again(const std::function<bool(std::size_t)>& is_marked, bool keeps_lazy);

    /// Returns whether any gradient is lazy.
    [[nodiscard]] bool has_lazy_gradients() const noexcept { return has_lazy_gradients_; }

    /// Sets the address of a lazy gradient for this step.
    void set_gradient(std::size_t i, void* gradient) noexcept;

    /// Returns whether the address of a gradient is known, or it has no elements.
    [[nodiscard]] bool has_gradient(std::size_t i) const noexcept {
        return addresses_[i].gradient != nullptr || refs_[i].count == 0;
    }

    /// Asks for the address of a lazy gradient if it is not known yet. Throws what the program's own code
    /// throws.
    void find_gradient(std::size_t i, IfMissing if_missing);

    /// Returns the index of the parameter whose gradient begins at this address, the first one of tied
    /// parameters, or size() if there is none.
    [[nodiscard]] std::size_t index_of_gradient(const void* gradient);

    /// Returns a description of the parameters, one line each, which must be equal on all ranks.
    [[nodiscard]] std::string table() const;

    /// Broadcasts the values of rank `root`, except those of ignored parameters. Values on devices are sent
    /// after the work of `stream`. Collective, blocks.
    void broadcast_values(ProcessGroup& group, int root, StreamRef stream = {});

    /// Runs a collective on values or gradients until it is complete. In device memory, only waiting shows
    /// whether it has failed.
    static void run(ProcessGroup& group, const Collective& call);

    /// Returns the source that finds the parameters.
    [[nodiscard]] const ParameterSource& source() const noexcept { return source_; }

    /// Returns the parameters in registration order.
    [[nodiscard]] const std::vector<ParameterRef>& refs() const noexcept { return refs_; }
    [[nodiscard]] const std::vector<bool>& ignored() const noexcept { return ignored_; }
    [[nodiscard]] const TiedParameters& tied() const noexcept { return tied_; }

    /// Returns the parameters whose gradients are sent, in registration order: not those that are ignored,
    /// and only the first of parameters that are tied.
    [[nodiscard]] std::vector<std::size_t> sent() const;
    [[nodiscard]] std::size_t size() const noexcept { return refs_.size(); }
    [[nodiscard]] const ParameterRef& operator[](std::size_t i) const noexcept { return refs_[i]; }

  private:
    /// Takes parameters with their addresses.
    void set(std::vector<ParameterRef> parameters);

    /// Finds the parameters again, after more than addresses may have changed. Throws as read_addresses().
    void collect_again();

    /// Compares the addresses that were read with addresses_. Throws ArgumentError if other parameters are
    /// tied than at construction.
    void check_moves();

    void check_not_empty() const;

    void check_ties();

    void check_tied_are_ignored_together() const;

    ParameterSource source_;
    std::vector<ParameterRef> refs_;
    std::vector<ParameterAddresses> addresses_;        // those of refs_
    std::vector<ParameterAddresses> other_addresses_;  // as now read; later those before a change
    bool has_lazy_gradients_ = false;
    std::vector<bool> ignored_;
    TiedParameters tied_;
    TiedParameters tied_now_;  // workspace of check_ties()
    /// The addresses of gradients and their parameters, sorted. Empty until they are needed.
    std::vector<std::pair<const void*, std::size_t>> by_address_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/model_parameters.ipp"
#endif
