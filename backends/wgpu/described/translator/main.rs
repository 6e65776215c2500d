//! Translates a WGSL compute shader from standard input with naga, as wgpu does for Vulkan, DirectX 12 and Metal: writes
//! shader.spv, shader.hlsl and shader.metal to the folder that is its only argument.
//!
//! Index and loop checks are off, as in `native.compile_module`. What cannot be translated is said on standard error, one
//! line per language, `spirv: ...`; the other languages are written all the same.

use std::{env, error::Error, fs, io, io::Read, path::Path, process::ExitCode};

use naga::{
    back::{hlsl, msl, spv},
    front::wgsl,
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
    valid::{Capabilities, ModuleInfo, ValidationFlags, Validator},
    AddressSpace, Module, ShaderStage,
};

type Outcome = Result<(), Box<dyn Error>>;

const ENTRY_POINT: &str = "main";
const UNCHECKED: BoundsCheckPolicies = BoundsCheckPolicies {
    index: BoundsCheckPolicy::Unchecked,
    buffer: BoundsCheckPolicy::Unchecked,
    image_load: BoundsCheckPolicy::Unchecked,
    binding_array: BoundsCheckPolicy::Unchecked,
};

fn main() -> ExitCode {
    let Some(folder) = env::args().nth(1) else {
        eprintln!("usage: polyhal-shader-translator FOLDER < SHADER");
        return ExitCode::from(2);
    };
    let (module, info) = match parsed() {
        Ok(shader) => shader,
        Err(problem) => {
            eprintln!("wgsl: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let folder = Path::new(&folder);
    let outcomes = [
        ("spirv", write_spirv(&module, &info, &folder.join("shader.spv"))),
        ("hlsl", write_hlsl(&module, &info, &folder.join("shader.hlsl"))),
        ("msl", write_msl(&module, &info, &folder.join("shader.metal"))),
    ];
    for (language, outcome) in &outcomes {
        if let Err(problem) = outcome {
            eprintln!("{language}: {}", problem.to_string().replace('\n', " "));
        }
    }
    ExitCode::SUCCESS
}

fn parsed() -> Result<(Module, ModuleInfo), Box<dyn Error>> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let module = wgsl::parse_str(&text).map_err(|error| error.emit_to_string(&text))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|error| error.emit_to_string(&text))?;
    Ok((module, info))
}

/// SPIR-V 1.3, that of Vulkan 1.1.
fn write_spirv(module: &Module, info: &ModuleInfo, path: &Path) -> Outcome {
    let options = spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: UNCHECKED,
        force_loop_bounding: false,
        ..Default::default()
    };
    let entry = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: ENTRY_POINT.into() };
    let words = spv::write_vec(module, info, &options, Some(&entry))?;
    Ok(fs::write(path, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())?)
}

/// Shader model 6.2, the first with 16-bit types. Registers are the bindings of WGSL, immediates are in one of their own.
fn write_hlsl(module: &Module, info: &ModuleInfo, path: &Path) -> Outcome {
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_2,
        immediates_target: Some(hlsl::BindTarget { space: 2, ..Default::default() }),
        restrict_indexing: false,
        force_loop_bounding: false,
        ..Default::default()
    };
    let entry = hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, ENTRY_POINT.into())) };
    let mut text = String::new();
    let reflection = hlsl::Writer::new(&mut text, &options, &entry).write(module, info, None)?;
    for name in reflection.entry_point_names {
        name?;
    }
    Ok(fs::write(path, text)?)
}

/// Metal 3.0, the first with atomic floats. Buffers take one slot after the other.
fn write_msl(module: &Module, info: &ModuleInfo, path: &Path) -> Outcome {
    let mut resources = msl::EntryPointResources::default();
    let mut slots = 0..;
    for (_, variable) in module.global_variables.iter() {
        if let Some(binding) = variable.binding {
            let target = msl::BindTarget { buffer: slots.next(), mutable: true, ..Default::default() };
            resources.resources.insert(binding, target);
        } else if variable.space == AddressSpace::Immediate {
            resources.immediates_buffer = slots.next();
        }
    }
    resources.sizes_buffer = slots.next();
    let options = msl::Options {
        lang_version: (3, 0),
        per_entry_point_map: [(ENTRY_POINT.to_string(), resources)].into(),
        fake_missing_bindings: false,
        bounds_check_policies: UNCHECKED,
        force_loop_bounding: false,
        ..Default::default()
    };
    let entry = msl::PipelineOptions { entry_point: Some((ShaderStage::Compute, ENTRY_POINT.into())), ..Default::default() };
    let (text, translation) = msl::write_string(module, info, &options, &entry)?;
    for name in translation.entry_point_names {
        name?;
    }
    Ok(fs::write(path, text)?)
}
