"""Names of PyTorch that have no place here, by pattern, and names that are spelled in another way without an adapter."""

from __future__ import annotations

NOT_PUBLIC: tuple[str, ...] = (
    r".*_copy|unsafe_.*|.*\.(handle_torch_function|has_torch_function.*|boolean_dispatch|assert_int_or_pair|factory_kwargs)",
    r"(import_ir_module.*|parse_(ir|schema|type_comment)|merge_type_from_type_comment|unify_type_list|fork|wait|classproperty)",
    r"(batch_norm_(backward|elemt|gather|stats|update).*|native_.*|norm_except_dim|get_file_path|hash_tensor|typename)",
    r"(init_num_threads|thread_safe_generator|prepare_multiprocessing_environment|profiler_.*|autocast_.*_nesting)",
    r"(clear_autocast_cache|compiled_with_cxx11_abi|choose_qparams_optimized|read_vitals|set_vital|vitals_enabled)",
    r"(slice_inverse|frobenius_norm|nuclear_norm|rnn_(relu|tanh)(_cell)?|lstm|lstm_cell|gru|gru_cell|grid_sampler.*)",
    r"(affine_grid_generator|conv_tbc|convolution|constant_pad_nd|embedding_renorm|get_device_module|is_storage)",
    r"(sym_.*|alias|is_same_size|is_vulkan_available|scalar_tensor|from_file|layout|name|output_nr|gradient_edge)",
    r"Tensor\.(unsafe_.*|as_subclass|const_data_ptr|data_ptr|dim_order|module_load|set_|storage.*|untyped_storage|new|index)",
    r"Tensor\.(volatile|reinforce|resize|resize_as|output_nr|name|names|hash_tensor|slice_inverse|to_padded_tensor|retains_grad)",
    r"Tensor\.(indices|values|is_set_to|grad_dtype|layout|type|sum_to_size)",
    r"nn\.(Container|CrossMapLRN2d|NLLLoss2d|RNNBase|RNNCellBase|Uninitialized.*|LinearCrossEntropyOptions|factory_kwargs)",
    r"nn\.functional\.(.*_with_indices|native_channel_shuffle|conv_tbc|grouped_mm|scaled_mm|scaled_grouped_mm|upsample.*)",
    r"nn\.init\.(constant|dirac|eye|kaiming_.*m|.*al|normal|orthogonal|sparse|uniform|xavier_.*m)|nn\.utils\.(fuse_|skip_init|conv).*",
    r"nn\.utils\.rnn\.(PackedSequence_|bind|copy_method_params)",
    r"optim\.swap_in_.*|optim\.lr_scheduler\.Optimizer|optim\.swa_utils\.(Module|Optimizer|update_bn_.*|LRScheduler)",
    r"(linalg|fft|special)\.(Tensor|common_.*|.*_dim_common|factory_common_args)|func\.(debug_unwrap|rearrange)",
    r"autograd\.(DeviceType|Nested.*|Profiler.*|Saved.*|Variable|variable|enforce_.*|.*multithreading.*|is_.*|kineto.*|cast)",
    r".*\.(Tensor|ScalingType|SwizzleType)",
    r"utils\.data\.(DFIter.*|DataChunk|.*DataPipe|argument_.*|functional_datapipe|guaranteed_.*|non_det.*|runtime_.*)",
)  # fmt: skip
"""Names that a module of PyTorch holds but does not document for users."""

_QUANTIZED = "a library or number format of PyTorch's own"
ABSENT: dict[str, str] = {
    r"(Tensor\.)?(.*sparse.*|sspaddmm|saddmm|smm|spmm|hspmm|dsmm|hsmm|.*_indices_copy|c(col|row)_indices|(col|row)_indices|coalesce"
    r"|is_coalesced|dense_dim|to_dense)|optim\.SparseAdam": "there are no sparse tensors",
    r"(Tensor\.)?(cudnn_.*|miopen_.*|mkldnn_.*|.*mkldnn|fbgemm_.*|.*quantize.*|q_.*|qscheme|int_repr)": _QUANTIZED,
    r"quantized_.*|fused_moving_avg_obs_fake_quant|fake_.*": _QUANTIZED,
    r"(Tensor\.)?(resize_|resize_as_|as_strided.*|empty_strided|new_empty_strided|empty_permuted)":
        "strides are no concern of users",
    r"(Tensor\.)?(resolve_conj|resolve_neg|is_conj|is_neg|conj_physical_?)": "conjugates are computed at once",
    r"(Tensor\.)?(solve|symeig|eig|lstsq|matrix_rank|lu_unpack|cholesky|qr|svd|lobpcg|orgqr)":
        "deprecated in favour of `linalg`",
    r"(Tensor\.)?(chain_matmul|norm|renorm|triangular_solve|range|lu|geqrf|ormqr|svd_lowrank|pca_lowrank)":
        "deprecated or rare; `linalg` has what replaces it",
    r"Tensor\.(cuda|xpu|ipu|mtia|is_(cuda|cpu|ipu|maia|meta|mkldnn|mps|mtia|vulkan|xla|xpu|quantized|nested|distributed|inference))":
        "devices have names here: `x.device`, `x.to(name)`",
    r"Tensor\.(pin_memory|is_pinned|share_memory_|is_shared|record_stream|apply_|map_|map2_)":
        "the data loader pins and shares memory by itself; there are no loops over elements",
    r"(get|set)_(autocast.*|anomaly.*|default_tensor_type|flush_denormal|num_interop_threads|num_threads|printoptions|warn_always.*"
    r"|deterministic_debug_mode)|is_(autocast.*|anomaly.*|warn_always.*|inference.*|distributed|deterministic.*)":
        "settings of PyTorch's runtime",
    r"(autocast.*|init_num_threads|compile|cond|while_loop|vmap_.*)": "PyTorch's compiler; here `polyhal.jit`",
    r"(nn\.)?(DataParallel|SyncBatchNorm)|utils\.data\.(DistributedSampler|get_worker_info)": "for several devices",
    r"func\.(functionalize|linearize)": "a tool of PyTorch's compiler",
}  # fmt: skip
"""Reasons by pattern of qualified names."""

OTHER_SPELLINGS: dict[str, str] = {
    "Tensor.size": "`x.shape`, `x.shape[i]`; `x.size` is the number of elements, as in the Array API and NumPy",
    "Tensor.is_contiguous": "`x.is_contiguous`, a property",
    "Tensor.grad_fn": "`x.node`",
    "Tensor.data": "`x.detach()`",
    "Tensor.stride": "`x.strides`, in elements",
    "Tensor.get_device": "`x.device`",
    "autograd.backward": "`loss.backward()`",
    "autograd.detect_anomaly": "`polyhal.autograd.detect_anomaly`",
    "autograd.set_detect_anomaly": "`polyhal.autograd.detect_anomaly`",
    "can_cast": "`can_cast(a, b)`: whether promotion leads from `a` to `b`, as in the Array API",
    "meshgrid": '`meshgrid(..., indexing="ij")`; the default is "xy", as in the Array API',
    "from_numpy": "`tensor(array)`, which copies",
    "is_tensor": "`isinstance(x, polyhal.Tensor)`",
}
"""By qualified name."""
