"""Names of PyTorch that are spelled in another way without an adapter, that have no place here, or that are no names for users.

All are patterns of whole qualified names: `torch` itself is left out, methods begin with `Tensor.`.
"""

from __future__ import annotations

NOT_PUBLIC: tuple[str, ...] = (
    r"(?!.*index_copy).*_copy|.*\.(handle_torch_function|has_torch_function.*|boolean_dispatch|assert_int_or_pair|factory_kwargs)",
    r"(import_ir_module.*|parse_(ir|schema|type_comment)|merge_type_from_type_comment|unify_type_list|fork|wait|classproperty)",
    r"(batch_norm_(backward|elemt|gather|stats|update).*|native_.*|norm_except_dim|get_file_path|hash_tensor|typename)",
    r"(init_num_threads|thread_safe_generator|prepare_multiprocessing_environment|profiler_.*|autocast_.*_nesting)",
    r"(clear_autocast_cache|compiled_with_cxx11_abi|choose_qparams_optimized|read_vitals|set_vital|vitals_enabled)",
    r"(slice_inverse|frobenius_norm|nuclear_norm|rnn_(relu|tanh)(_cell)?|lstm|lstm_cell|gru|gru_cell|grid_sampler.*)",
    r"(affine_grid_generator|conv_tbc|convolution|constant_pad_nd|embedding_renorm|get_device_module|is_storage)",
    r"(sym_.*|alias|is_same_size|is_vulkan_available|scalar_tensor|from_file|layout|name|output_nr|gradient_edge)",
    r"Tensor\.(const_data_ptr|dim_order|grad_dtype|hash_tensor|is_same_size|module_load|new|slice_inverse|to_padded_tensor)",
    r"Tensor\.(volatile|reinforce|resize|resize_as|output_nr|name|names|index|storage_type)",
    r"nn\.(Container|LinearCrossEntropyOptions|NLLLoss2d|RNNCellBase|Uninitialized.*)|nn\.utils\.rnn\.(PackedSequence_|bind|.*params)",
    r"nn\.functional\.(.*_with_indices|native_channel_shuffle|conv_tbc|grouped_mm|scaled_mm|scaled_grouped_mm)",
    r"optim\.lr_scheduler\.Optimizer|optim\.swa_utils\.(Module|Optimizer|update_bn_.*|LRScheduler)",
    r"(linalg|fft|special)\.(Tensor|common_.*|.*_dim_common|factory_common_args)|func\.(debug_unwrap|rearrange)",
    r"autograd\.(DeviceType|Nested.*|Profiler.*|Saved.*|variable|enforce_.*|.*multithreading.*|is_.*|kineto.*|cast)",
    r".*\.(Tensor|ScalingType|SwizzleType)",
    r"utils\.data\.(DFIter.*|DataChunk|argument_.*|functional_datapipe|guaranteed_.*|non_det.*|runtime_.*)",
)
"""Names that a module of PyTorch holds but does not document for users."""

_METHOD = r"(Tensor\.)?"
FOREIGN: dict[str, str] = {
    "sparse tensors": (
        rf"{_METHOD}(.*sparse(?!_$).*|.*sparse_mask|resize_as_sparse_|sspaddmm|saddmm|smm|spmm|hspmm|dsmm|hsmm|c(col|row)_indices"
        r"|(col|row)_indices|crow_indices|coalesce|is_coalesced|dense_dim|to_dense|indices|values)|optim\.SparseAdam"
    ),
    "quantized tensors": (
        rf"{_METHOD}(.*quantize.*|q_.*|qscheme|int_repr|quantized_.*|fused_moving_avg_obs_fake_quant|fake_.*)"
    ),
    "libraries and kinds of devices with names in PyTorch; here `x.device`, and `x.to(name)`": (
        rf"{_METHOD}(cudnn_.*|miopen_.*|mkldnn_.*|.*mkldnn|fbgemm_.*|cuda|xpu|ipu|mtia"
        r"|is_(cuda|cpu|ipu|maia|meta|mps|mtia|vulkan|xla|xpu|nested|distributed))"
    ),
    "raw memory and strides, which belong to the device and to the passes": (
        rf"{_METHOD}(resize_|resize_as_|empty_strided|new_empty_strided|empty_permuted|set_|is_set_to|layout"
        r"|(untyped_)?storage(_offset)?|data_ptr|unsafe_.*)|nn\.utils\.convert_conv.*"
    ),
    "sharing memory by hand; the data loader pins and shares memory by itself": (
        r"Tensor\.(pin_memory|is_pinned|share_memory_|is_shared|record_stream)"
    ),
    "conjugates and signs that are applied later; here they are computed at once": (
        rf"{_METHOD}(resolve_conj|resolve_neg|is_conj|is_neg)"
    ),
    "names that PyTorch itself has given up, or keeps for old programs": (
        rf"Tensor\.(solve|symeig|eig|lstsq|as_subclass)|{_METHOD}matrix_rank|nn\.utils\.skip_init|.*DataPipe|autograd\.Variable"
        r"|nn\.CrossMapLRN2d|optim\.swap_in_.*"
        r"|nn\.init\.(constant|dirac|eye|kaiming_(normal|uniform)|normal|orthogonal|sparse|uniform|xavier_(normal|uniform))"
    ),
    "settings of PyTorch's own runtime": (
        r"(get|set)_(autocast.*|anomaly.*|default_tensor_type|flush_denormal|num_interop_threads|num_threads|warn_always.*"
        r"|deterministic_debug_mode)|is_(autocast.*|anomaly.*|warn_always.*|inference.*|distributed|deterministic.*)"
        r"|Tensor\.is_inference"
    ),
    "PyTorch's compiler": r"autocast.*|cond|while_loop|vmap_.*|func\.(functionalize|linearize)",
    "training on several devices": r"nn\.DataParallel|utils\.data\.DistributedSampler",
}
"""Patterns of names by subject. Polyhal does not have these subjects, so the names do not count as names of common use."""

ABSENT: dict[str, str] = {
    r"(Tensor\.)?as_strided.*": "strides belong to the device; use slices, `unfold`, `diagonal` or `permute`",
    r"lobpcg": "use `linalg.eigh`",
    r"range": "deprecated, because it includes its end; use `arange`",
    r"to_dlpack|Tensor\.to_dlpack": "elements may lie on a device that other libraries cannot read; use `x.numpy()`",
    r"set_printoptions": "the form is fixed; print `x.numpy()` with NumPy's options",
    r"Tensor\.(apply_|map_|map2_)": "a Python function for each element; use operations on tensors, or `polyhal.kernel`",
    r"utils\.data\.get_worker_info": "streams are cut for the workers by the loader",
}
"""Names of common use that are left out, by pattern, with the replacement."""

OTHER_SPELLINGS: dict[str, str] = {
    "Tensor.get_device": "`x.device`",
    "Tensor.grad_fn": "`x.node`",
    "Tensor.is_contiguous": "`x.is_contiguous`, a property",
    "Tensor.new": "`x.new_empty(shape)`",
    "Tensor.size": "`x.size()`, `x.size(i)`; without parentheses, the number of elements as in the Array API and NumPy",
    "Tensor.stride": "`x.strides`, in elements",
    "Tensor.type": "`x.to(dtype)`, and `x.dtype`",
    "Tensor.conj_physical": "`x.conj()`, which computes at once",
    "can_cast": "`can_cast(a, b)`: whether promotion leads from `a` to `b`, as in the Array API",
    "compile": "`polyhal.jit`, which captures a step",
    "conj_physical": "`conj(x)`, which computes at once",
    "from_numpy": "it copies; `from_dlpack(array)` shares memory where the device can",
    "is_tensor": "`isinstance(x, polyhal.Tensor)`",
    "meshgrid": '`meshgrid(..., indexing="ij")`; the default is "xy", as in the Array API',
    "nn.RNNBase": "`nn.RNN`, `nn.GRU`, `nn.LSTM`",
    "autograd.set_detect_anomaly": "`with polyhal.autograd.detect_anomaly():`",
}
"""By qualified name."""
